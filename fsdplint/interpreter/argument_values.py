"""The values that a command-line argument can have: its `choices=` and its default."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter.configurations import outcome
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.settings_files import default_of
from fsdplint.interpreter.values import Condition, Const, Sequence, Unknown, Value

_PARSED = "parse_args()"
_FLAGS = {("store_true",), ("store_false",)}  # actions


def default_text(run: Run, value: Value | None) -> str | None:
    """The text that a setting is, or has by default; None if it has none."""
    found = default_of(value)
    if found is None and isinstance(value, Unknown) and value.template is not None:
        inner = default_text(run, value.template.hole)
        return None if inner is None else f"{value.template.before}{inner}{value.template.after}"
    if found is None and isinstance(value, Unknown):
        parsed, _, name = value.origin.rpartition(".")
        found = run.argument_texts.get(name) if parsed.endswith(_PARSED) else None
    return found if isinstance(found, str) else None


def note_values(run: Run, destination: str, call: Call) -> None:
    """Note the values of an argument; several parsers may have one of the same name."""
    flag = _constant(run.settle(call.kwargs.get("action", Const("store")))) in _FLAGS
    run.argument_flags[destination] = flag and run.argument_flags.get(destination, True)
    text = default_of(run.settle(call.kwargs.get("default", Const(None))))
    text = text if isinstance(text, str) else None
    if run.argument_texts.setdefault(destination, text) != text:
        run.argument_texts[destination] = None
    usual = _default(run, call)
    if run.argument_defaults.setdefault(destination, usual) != usual:
        run.argument_defaults[destination] = ()
    noted = _values(run, call)
    known = run.argument_constants.get(destination, noted)
    if noted is None or known is None:
        run.argument_constants[destination] = None
        return
    choices, defaults = (
        tuple(dict.fromkeys((*one, *other))) for one, other in zip(known, noted, strict=True)
    )
    run.argument_constants[destination] = (choices, defaults)


def note_defaults(run: Run, call: Call) -> None:
    """`parser.set_defaults(...)`"""
    for name in list(run.argument_constants) if call.open else call.kwargs:
        value = run.settle(call.kwargs[name]) if name in call.kwargs else None
        run.argument_defaults[name] = _constant(value) or ()
        known = run.argument_constants.get(name)
        run.argument_constants[name] = (
            (known[0], (value.value,)) if known is not None and isinstance(value, Const) else None
        )


def with_values(run: Run, condition: Condition) -> Condition:
    """The condition, with the values that its subject can have."""
    parsed, _, name = condition.subject.rpartition(".")
    known = run.argument_constants.get(name) if parsed.endswith(_PARSED) else None
    return replace(condition, among=(*known[0], *known[1])) if known is not None else condition


def outcome_by_default(run: Run, condition: Condition) -> bool | None:
    """How the key of a condition is decided if its subject has its default; None if unknown."""
    parsed, _, name = condition.subject.rpartition(".")
    if parsed.endswith(_PARSED):
        known = run.argument_defaults.get(name, ())
    else:
        known = _constant(run.setting_defaults.get(condition.subject)) or ()
    return outcome(condition, known[0]) if known else None


def is_none_by_assumption(run: Run, value: Value | None) -> bool:
    """Whether a value is None because a run assumes that a setting is None which need not be.

    No default says that it is: `if policy is None: return None` may only be cautious.
    """
    if not isinstance(value, Const) or value.value is not None:
        return False
    asked = run.decisions.questions
    tests = [asked[key] for key in value.decided_by if key in asked]
    return any(
        test.condition.relation == "is None"
        and test.answer
        and outcome_by_default(run, test.condition) is not True
        for test in tests
    )


def is_flag(run: Run, value: Value) -> bool:
    """Whether a value is an argument of the command line that can only be True or False."""
    parsed, _, name = value.origin.rpartition(".") if isinstance(value, Unknown) else ("", "", "")
    return parsed.endswith(_PARSED) and run.argument_flags.get(name, False)


def _values(run: Run, call: Call) -> tuple[tuple[object, ...], tuple[object, ...]] | None:
    """The choices and the defaults of an argument; None if it may have other values."""
    action = run.settle(call.kwargs.get("action", Const("store")))
    if call.open or "nargs" in call.kwargs or _constant(action) != ("store",):
        return None
    given = run.settle(call.kwargs.get("choices", Const(None)))
    items = [run.settle(item) for item in given.items] if isinstance(given, Sequence) else []
    if not items or not isinstance(given, Sequence) or given.open:
        return None
    choices = [_constant(item) for item in items]
    default: tuple[object, ...] | None = ()
    if "default" in call.kwargs:
        default = _constant(run.settle(call.kwargs["default"]))
    elif not (_is_positional(run, call) or _constant(call.kwargs.get("required")) == (True,)):
        default = (None,)
    if default is None or not all(choices):
        return None
    return tuple(one for choice in choices if choice for one in choice), default


def _default(run: Run, call: Call) -> tuple[object, ...]:
    """The default of an argument, in a tuple; () if it is not known, or has to be given."""
    action = _constant(run.settle(call.kwargs.get("action", Const("store"))))
    if call.open or action not in (("store",), *_FLAGS):
        return ()
    if "default" in call.kwargs:
        return _constant(run.settle(call.kwargs["default"])) or ()
    if action in _FLAGS:
        return (action == ("store_false",),)
    given = _is_positional(run, call) or _constant(call.kwargs.get("required")) == (True,)
    return () if given else (None,)


def _constant(value: Value | None) -> tuple[object, ...] | None:
    """The constant that a value is, in a tuple; None if it is none."""
    return (value.value,) if isinstance(value, Const) else None


def _is_positional(run: Run, call: Call) -> bool:
    name = _constant(run.settle(call.args[0])) if call.args else None
    return name is not None and not str(name[0]).startswith("-")
