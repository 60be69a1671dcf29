"""The statements that an assisted migration sets aside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import libcst as cst

from fsdplint.config.options import Refused
from fsdplint.interpreter import Program
from fsdplint.migration.assisted.lines import lines_for, main_reason, sentence
from fsdplint.migration.assisted.places import Form, Place, join_places, place_of, runs_on_import
from fsdplint.migration.assisted.readers import readers_of
from fsdplint.migration.blockers import Blocked, Reason
from fsdplint.migration.blockers.constructor import CONFIG_UNSEEN
from fsdplint.migration.blockers.policies import POLICY_UNSEEN, POLICY_USE_UNSEEN
from fsdplint.migration.blockers.program import (
    API_USE,
    CONSTANT_WITHOUT_MODEL,
    DEPENDS,
    EDIT_IN_OTHER_BRANCH,
    FILE_NOT_GIVEN,
    GIVEN_TO_OTHER_LIBRARY,
    IMPORTED_FROM_TWO,
    NAME_OF_TWO_LIBRARIES,
    NOT_IMPORTED,
    PROGRAM_TOO_LARGE,
    REFUSED,
    TOO_MANY_USES,
    WRAPPED_BY_SUBCLASS,
    WRAPPED_ELSEWHERE,
    WRAPPING_FUNCTION_NOT_CALLED,
)
from fsdplint.migration.blockers.state_dicts import CONFIG_UNSEEN as STATE_CONFIG_UNSEEN
from fsdplint.migration.blockers.training import GENERATE_OUTSIDE_FORWARD, PARTS_OUTSIDE_FORWARD
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import fsdp1_name
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import symbols_in

# Blockers of a whole program: no statement of it can stand for them.
WHOLE_PROGRAM = {
    one.code
    for one in (
        EDIT_IN_OTHER_BRANCH,
        FILE_NOT_GIVEN,
        GIVEN_TO_OTHER_LIBRARY,
        IMPORTED_FROM_TWO,
        NAME_OF_TWO_LIBRARIES,
        PROGRAM_TOO_LARGE,
        TOO_MANY_USES,
    )
}

# Blockers of files that say nothing of how the model is wrapped, unless that is set aside.
NOT_GIVEN = {
    one.code
    for one in (
        NOT_IMPORTED,
        CONSTANT_WITHOUT_MODEL,
        WRAPPED_BY_SUBCLASS,
        WRAPPED_ELSEWHERE,
        WRAPPING_FUNCTION_NOT_CALLED,
    )
}

# Blockers of code whose counterpart is not seen, as it is not where that is set aside.
UNSEEN = {
    one.code
    for one in (
        CONFIG_UNSEEN,
        GENERATE_OUTSIDE_FORWARD,
        PARTS_OUTSIDE_FORWARD,
        POLICY_UNSEEN,
        POLICY_USE_UNSEEN,
        STATE_CONFIG_UNSEEN,
    )
} | NOT_GIVEN
LONGEST = 60  # characters of the code that a dependent place names


class Undecided:
    """The statements that are set aside, and the blockers that were found so far.

    Attributes:
        places: the statements.
        sites: how many uses of FSDP1 are rewritten, and how many there are; known after `write`.
    """

    def __init__(self, program: Program, sources: Sequence[Source]) -> None:
        """sources: the files that are migrated."""
        self.places: list[Place] = []
        self.sites = 0, 0
        self._program = program
        self._sources = sources
        self._files = {*sources, *program.sources.values()}
        self._found: list[Blocked] = []

    @property
    def nodes(self) -> frozenset[cst.CSTNode]:
        """The nodes of the statements."""
        return frozenset(
            node for place in self.places for node in place.source.descend(place.statement)
        )

    @cached_property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The names in the statements, each with the path of its file."""
        found: dict[tuple[str, str], None] = {}
        for place in self.places:
            for node in place.source.descend(place.statement):
                if isinstance(node, cst.Name):
                    found.setdefault((place.source.path, node.value))
        return tuple(found)

    def uncovered_blockers(self, blockers: Iterable[Blocked]) -> list[Blocked]:
        """The blockers that are not about a statement that is set aside."""
        return [one for one in blockers if not self._covers(one)]

    def _covers(self, blocked: Blocked) -> bool:
        at = [(blocked.source, blocked.node)]
        at += [blocked.use] if blocked.use is not None else []
        return any(place.holds(*one) for place in self.places for one in at)

    # Setting aside ----------------------------------------------------------------------------

    def add(self, blockers: Iterable[Blocked]) -> bool:
        """Set aside the statements of some blockers. Returns False if one has no statement."""
        decided = self.places[0] if self.places else None
        for blocked in blockers:
            if is_of_whole_program(blocked) or (decided is None and blocked.code in NOT_GIVEN):
                return False
            if decided is not None and _is_consequence(blocked):
                blocked = _dependent(blocked, decided)
            places = self._places(blocked)
            if not places:
                return False
            self._found.append(blocked)
            for place in places:
                self._set_aside(place, blocked)
        return True

    def _places(self, blocked: Blocked) -> list[Place]:
        """The statement of the use that a blocker stops, and the code of FSDP1 that it is about."""
        source, node = blocked.use or (blocked.source, blocked.node)
        place = place_of(source, node) if source in self._files else None
        if place is None:
            return []
        about = place_of(blocked.source, blocked.node)
        if about is None or place.holds(blocked.source, blocked.node):
            return [place]
        own = about.form is Form.RAISE and blocked.source in self._files
        return [about, place] if own and _names_fsdp1(about) else [place]

    def add_refused(self, refused: Iterable[Refused]) -> None:
        """Set aside the statements whose rewrite the validation refused."""
        for one in refused:
            for source in self._sources:
                if source.path == one.path:
                    self.add(_refused_blockers(source, one))

    def _set_aside(self, place: Place, blocked: Blocked) -> None:
        for other in self.places:
            if other.holds(place.source, place.statement):
                other.explain(blocked)
                return
        for one in [one for one in self.places if place.holds(one.source, one.statement)]:
            self.places.remove(one)
            place.explain(*one.reasons)
        # What an earlier use said about this code is more to the point.
        place.explain(*(one for one in self._found if place.holds(one.source, one.node)))
        place.explain(blocked)
        self.places.append(place)
        if place.form is Form.RAISE and runs_on_import(place.source, place.statement):
            self._leave_to_readers(place, blocked)

    def _leave_to_readers(self, place: Place, blocked: Blocked) -> None:
        """Raise where the names of a statement are read, so that its module can be imported."""
        readers = readers_of(self._program, place)
        if readers is None:
            return
        places = [place_of(place.source, node) for node in readers]
        if any(one is None or runs_on_import(one.source, one.statement) for one in places):
            return
        place.form = Form.NOTHING
        for one in places:
            if one is not None:
                self._set_aside(one, blocked)

    def enclosing(self, migration: Migration) -> list[Blocked]:
        """Blockers of the code around statements whose text a rewrite replaces as a whole."""
        found = []
        for place in self.places:
            owner = migration.owner(place.source, *place.span)
            if owner is not None:
                node = _node_at(place.source, owner)
                found += [] if node is None else [place.reasons[0].at(place.source, node)]
        return self.uncovered_blockers(found)

    def _name_causes(self) -> None:
        """Let a statement that is set aside for code of another one say that it depends on it."""
        for place in self.places:
            causes = [self._cause(place, one) for one in place.reasons]
            if all(causes) and causes[0] is not None:
                place.reasons = [_dependent(place.reasons[0], causes[0])]

    def _cause(self, place: Place, reason: Blocked) -> Place | None:
        """The other statement that a reason is about."""
        if place.holds(reason.source, reason.node):
            return None
        return next((x for x in self.places if x.holds(reason.source, reason.node)), None)

    def _count(self, migration: Migration) -> tuple[int, int]:
        """How many uses of FSDP1 are rewritten, and how many there are.

        A use is a reference to a name of FSDP1, or code without such a name that is rewritten or
        set aside.
        """
        names = [(x, n) for x in self._sources for n in nodes(x) if n in migration.names]
        aside = [
            (x, n)
            for x in self._sources
            for n in nodes(x)
            if migration.undecided_name(n) and n not in migration.names
        ]
        members = [
            step
            for step in migration.steps
            if not any(x is step.source and _is_inside(x, step.node, n) for x, n in names)
        ]
        nameless = [one for one in self.places if not any(one.holds(x, n) for x, n in aside)]
        done = len(names) + len(members)
        return done, done + len(aside) + len(nameless)

    # Writing ----------------------------------------------------------------------------------

    def write(self, migration: Migration) -> None:
        """Replace the statements."""
        self._name_causes()
        for place in self.places:
            migration.account_for(place.source, place.statement)
        places = join_places(self.places)
        for place in places:
            source, (start, end) = place.source, place.span
            migration.rewrite.discard(source, start, end)
            migration.own_span(source, start, end)
            lines = lines_for(place)
            migration.rewrite.replace_statement(source, place.statement, lines, comments=False)
            if place.last is not None:
                first = replace(place, last=None).span[1]
                migration.rewrite.delete(source, first, end)
        migration.steps = [
            step
            for step in migration.steps
            if not any(place.holds(step.source, step.node) for place in self.places)
        ]
        self.sites = self._count(migration)
        for place in places:
            title = f"Raise until a person has decided: {sentence(main_reason(place))}"
            migration.step(place.source, place.statement, title)


def is_of_whole_program(blocked: Blocked) -> bool:
    """Whether no statement can stand for a blocker."""
    return blocked.code in WHOLE_PROGRAM


def _names_fsdp1(place: Place) -> bool:
    """Whether a statement without a body names FSDP1."""
    if not isinstance(place.statement, cst.BaseSmallStatement):
        return False
    names = symbols_in(place.source)
    return any(
        fsdp1_name(names[node]) is not None
        for node in place.source.descend(place.statement)
        if node in names
    )


def _is_consequence(blocked: Blocked) -> bool:
    """Whether a blocker is likely to exist only because another statement is set aside."""
    if blocked.code in UNSEEN:
        return True
    return blocked.code == API_USE.code and blocked.rewritten_with_other


def _dependent(blocked: Blocked, place: Place) -> Blocked:
    """The blocker of code whose rewrite depends on a statement that is set aside."""
    code = " ".join(place.source.code(place.statement).split())
    short = code if len(code) <= LONGEST else f"{code[:LONGEST]}..."
    result = Blocked(blocked.source, blocked.node, DEPENDS(code=short))
    result.use = blocked.use
    return result


def _refused_blockers(source: Source, refused: Refused) -> list[Blocked]:
    node = _node_at(source, (refused.start, refused.end))
    reason = Reason(REFUSED, refused.reason, REFUSED.advice)
    return [] if node is None else [Blocked(source, node, reason)]


def _is_inside(source: Source, outer: cst.CSTNode, node: cst.CSTNode) -> bool:
    start, end = source.span(outer)
    left, right = source.span(node)
    return start <= left and right <= end


def _node_at(source: Source, span: tuple[int, int]) -> cst.CSTNode | None:
    """The outermost node with a span."""
    return next((node for node in nodes(source) if source.span(node) == span), None)
