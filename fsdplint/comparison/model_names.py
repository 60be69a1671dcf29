"""Names of modules that two programs share: the path of attributes from the model."""

from __future__ import annotations

from functools import cached_property

from fsdplint.trace import Called, Location, Module, ModuleBuilt, Trace

MODEL = "model"


class ModelNames:
    """The names of the modules of one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._above: dict[str, tuple[str, str]] = {}
        for name, info in trace.modules.items():
            for attribute, child in info.children.items():
                self._above.setdefault(child, (name, self._shown_name(info, attribute)))
        self._wrapped_by = {
            info.inner: name for name, info in trace.modules.items() if info.inner is not None
        }
        self._called = {trace.unwrap(one.module) for one in trace.of(Called)}

    def _shown_name(self, info: Module, attribute: str) -> str:
        """The name of a child.

        Elements of one class under unknown keys, one of each turn of a loop, have the same.
        """
        first = info.children.get("*")
        if first is None or not attribute.startswith("*"):
            return attribute
        child = self.trace.modules[info.children[attribute]]
        same = self.trace.modules[first].class_name == child.class_name
        return "*" if same else attribute

    def root(self, module: str) -> str:
        """The model that a module is part of, without its wrappers."""
        return self._walk(module)[0]

    def path(self, module: str) -> str:
        """The path of a module: `model.layers.0`."""
        root, parts = self._walk(module)
        return ".".join([self.label(root), *parts])

    def label(self, root: str) -> str:
        """The name of a model: its class if the trace has several classes of them.

        A model of the same class that another place of the program builds gets a number.
        """
        info = self.trace.modules[root]
        name = MODEL if len(self._classes) < 2 else info.class_name or MODEL
        number = self._numbers.get(root, 1)
        return name if number == 1 else f"{name} {number}"

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Of each sharded model, the number of the statement that builds it among its class's."""
        statements: dict[str, list[Location]] = {}
        numbers: dict[str, int] = {}
        for event in self.trace.of(ModuleBuilt):
            if event.module in self.sharded_models:
                found = statements.setdefault(self.trace.modules[event.module].class_name, [])
                at = event.site.location()
                if at not in found:
                    found.append(at)
                numbers[event.module] = found.index(at) + 1
        return numbers

    @cached_property
    def _classes(self) -> set[str]:
        """The classes of the sharded models; an unknown part of another model is none."""
        built = {event.module for event in self.trace.of(ModuleBuilt)} | self._called
        models = self.sharded_models & built or self.sharded_models
        return {self.trace.modules[one].class_name for one in models}

    @cached_property
    def sharded_models(self) -> set[str]:
        """The models that are sharded, or have a part that is."""
        shardings = self.trace.shardings()
        return {self.root(module) for module in shardings if module in self.trace.modules}

    def is_opaque(self, module: str) -> bool:
        """Whether a module may have parts that are not known."""
        parts = [self.trace.modules[one] for one in self.trace.submodules(module)]
        return not all(one.children_known or one.qualified_class for one in parts)

    def _walk(self, module: str) -> tuple[str, list[str]]:
        parts: list[str] = []
        seen = set()
        current = self.trace.unwrap(module)
        while current not in seen:
            seen.add(current)
            if current in self._above:
                current, attribute = self._above[current]
                parts.insert(0, attribute)
            elif current in self._wrapped_by:
                current = self._wrapped_by[current]
        return self.trace.unwrap(current), parts
