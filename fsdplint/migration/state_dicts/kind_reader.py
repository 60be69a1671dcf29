"""Reads the type and the configs in calls of `state_dict_type`."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from fsdplint.interpreter.values import LibraryObject
from fsdplint.migration.analysis.variables import Definition, definitions, home_of, reads
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import (
    CONFIG_ARGUMENTS,
    CONFIG_FIELD_AT_RUN_TIME,
    CONFIG_UNSEEN,
    STATE_ARGUMENTS,
    TYPE_AT_RUN_TIME,
)
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.names import fsdp1_name
from fsdplint.migration.state_dicts.asserted_types import TypeReader
from fsdplint.migration.state_dicts.kinds import (
    CONFIG_PARAMETERS,
    CONFIGS,
    TYPE_PARAMETERS,
    Config,
    Kind,
)
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, is_constant


class KindReader:
    """Reads the arguments of `state_dict_type` and `set_state_dict_type` in one file."""

    def __init__(self, migration: Migration, source: Source) -> None:
        self.migration = migration
        self.source = source
        self._values: Mapping[str, cst.BaseExpression] = {}

    def kind(
        self, node: cst.Call, values: Mapping[str, cst.BaseExpression] | None = None
    ) -> tuple[Kind, str]:
        """The kind of state that a call sets, and the text of its model.

        Args:
            node: the call.
            values: the expressions for which names in it stand.

        Raises:
            Blocked: the kind is only known at run time.
        """
        self._values = values or {}
        named, rest = arguments(node, TYPE_PARAMETERS)
        if rest or "module" not in named:
            raise Blocked(self.source, node, STATE_ARGUMENTS())
        name = "FULL_STATE_DICT"
        if "state_dict_type" in named:
            name = self._type(named["state_dict_type"].value) or self._type_of_configs(named)
        if name not in CONFIGS:
            raise Blocked(self.source, node, TYPE_AT_RUN_TIME())
        full = name == "FULL_STATE_DICT"
        one, other = CONFIGS[name]
        model = self._config(named.get("state_dict_config"), one, Config())
        offload = name != "LOCAL_STATE_DICT"
        optimizer = self._config(
            named.get("optim_state_dict_config"), other, Config(offload=offload)
        )
        kind = Kind(full, model, optimizer, local=not offload)
        return kind, self.source.code(named["module"].value)

    def _meant(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """The expression for which a node stands."""
        return self._values.get(node.value, node) if isinstance(node, cst.Name) else node

    def _type(self, node: cst.BaseExpression) -> str:
        node = self._meant(node)
        name = self.migration.fsdp1(node)
        if not name and isinstance(node, cst.Name):
            found = definitions(self.source, node)
            if found and len(found) == 1:
                name = self.migration.fsdp1(found[0].value)
                if name:
                    self._leave_out(node, found[0])
        if not name:
            reader = TypeReader(self.migration)
            name = reader.single_type(self.source, node)
            if name and reader.asserted:
                text = f"the states are of the type that `{reader.asserted}` asserts"
                detail = "If you remove the assert, adapt the code that takes and loads the states."
                self.migration.note(text, self.source, node, detail=detail)
        return name.partition(".")[2] if name.startswith("StateDictType.") else ""

    def _type_of_configs(self, named: Mapping[str, cst.Arg]) -> str:
        """The only type that FSDP1 takes together with the configs of a call, or ""."""
        given = [named.get("state_dict_config"), named.get("optim_state_dict_config")]
        found = {
            name
            for name, configs in CONFIGS.items()
            for arg, config in zip(given, configs, strict=True)
            if arg is not None and self._classes(self._meant(arg.value)) == {config}
        }
        if len(found) != 1:
            return ""
        (name,) = found
        text = f"the states are of the type {name}, which is that of their config"
        detail = "FSDP1 raises an error if the setting names another type."
        self.migration.note(text, self.source, named["state_dict_type"].value, detail=detail)
        return name

    def _classes(self, node: cst.BaseExpression) -> set[str]:
        """The classes of the configs that an expression can be; with "" for those not known."""
        if isinstance(node, cst.IfExp):
            return self._classes(node.body) | self._classes(node.orelse)
        if isinstance(node, cst.Call):
            return {self.migration.called_name(node)}
        found = definitions(self.source, node) if isinstance(node, cst.Name) else None
        if found:
            return set().union(*(self._classes(one.value) for one in found))
        made = self.migration.values(node)
        names = [fsdp1_name(one.name) if isinstance(one, LibraryObject) else None for one in made]
        return {name or "" for name in names} or {""}

    def _leave_out(self, node: cst.Name, found: Definition) -> None:
        """Delete a variable that only calls of `state_dict_type` read."""
        self.migration.account_for(self.source, found.value)
        home = home_of(self.source, node)
        for use in reads(self.source, home or self.source.tree, node.value):
            arg = self.source.parent(use)
            call = self.source.parent(arg) if isinstance(arg, cst.Arg) else None
            if not self.migration.called_name(call).endswith("state_dict_type"):
                return
        self.migration.delete_statement(self.source, found.statement)

    def _config(self, arg: cst.Arg | None, name: str, default: Config) -> Config:
        node = self._meant(arg.value) if arg is not None else None
        if arg is None or node is None or is_constant(node, "None"):
            return default
        where: tuple[Source, cst.BaseExpression] | None = None
        if not isinstance(node, cst.Call):
            where = self._definition(node, name)
            node = where[1]
        source = where[0] if where else self.source
        if not isinstance(node, cst.Call) or self.migration.called_name(node) != name:
            raise Blocked(self.source, arg, CONFIG_ARGUMENTS(name=name))
        found, rest = arguments(node, CONFIG_PARAMETERS)
        config = Config(offload="Optim" in name)
        for key, arg_of_field in found.items():
            if key == "_use_dtensor":
                continue
            value = self._meant(arg_of_field.value)
            known = is_constant(value, "True", "False")
            if not (known or self._may_be_chosen(key, name, value, where is not None)):
                raise Blocked(source, arg_of_field, CONFIG_FIELD_AT_RUN_TIME(field=key))
            chosen = is_constant(value, "True")
            if key == "rank0_only":
                config.rank0 = chosen or not known
                config.rank0_test = "" if known else expression(self.migration, source, value)
            elif known:
                config.offload = chosen
            else:
                config.offload = True
                config.test = expression(self.migration, source, value)
        if rest:
            raise Blocked(source, node, STATE_ARGUMENTS())
        self.migration.account_for(source, node)
        if where is not None:
            config.name = expression(self.migration, self.source, arg.value)
            config.variable = where
            self.migration.states.configs.setdefault(node, config)
        return config

    def _may_be_chosen(
        self, key: str, name: str, value: cst.BaseExpression, in_variable: bool
    ) -> bool:
        """Whether the options can contain a config's field that is only known at run time.

        `rank0_only` of an optimizer's state has to be known, because it changes how the state is
        loaded.
        """
        if key == "offload_to_cpu":
            return True
        if key != "rank0_only" or name != "FullStateDictConfig":
            return False
        # Without a variable, the field is evaluated where the state is taken, maybe more than once.
        while isinstance(value, cst.Attribute):
            value = value.value
        return in_variable or isinstance(value, cst.Name)

    def _definition(self, node: cst.BaseExpression, name: str) -> tuple[Source, cst.BaseExpression]:
        """The expression that creates the config in a variable, an attribute or another file."""
        assigned = definitions(self.source, node) if isinstance(node, cst.Name) else None
        value = assigned[0].value if assigned and len(assigned) == 1 else None
        if value is not None and self.migration.called_name(value) == name:
            return self.source, value
        made = [v.created_at for v in self.migration.values(node) if isinstance(v, LibraryObject)]
        sites = {s.node: s for s in made if isinstance(s, NodeSite)}
        if len(sites) == 1:
            site = next(iter(sites.values()))
            if site.source in self.migration.sources and isinstance(site.node, cst.BaseExpression):
                return site.source, site.node
        if value is not None:
            return self.source, value
        raise Blocked(self.source, node, CONFIG_UNSEEN())
