"""The torch version of a program: from the settings, or from the project's requirements.

There are two questions. A fix must work with the *oldest* torch that the program must support: the
setting, or the lower bound or pin of the requirements. And the APIs that the program already uses
must exist in the torch that it runs on. They are certainly missing only if the setting, a pin
(`==`, `~=`) or an upper bound excludes newer versions. A lower bound alone proves nothing: a
program for `torch>=2.4` that uses an API of 2.7 runs with 2.7; its bound is too low.
"""

from __future__ import annotations

import configparser
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fsdplint.source.reading import read_text
from fsdplint.trace.torch_target import Target
from fsdplint.trace.torch_versions import NEWEST, as_numbers, older

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_LOWER_BOUND = re.compile(r"(>=|>|~=)(\s*)(\d+(?:\.\d+)*)")
Problems: TypeAlias = "list[tuple[Path, OSError]] | None"


def explicit(version: str | None) -> Target | None:
    """The target of a setting or option."""
    return None if version is None else Target(version, version)


def of_project(path: Path, root: Path, problems: Problems = None) -> Target | None:
    """The target in the nearest requirements above a path, up to the project's root.

    problems: receives the files of requirements that cannot be read.
    """
    problems = [] if problems is None else problems
    folder = path.absolute() if path.is_dir() else path.absolute().parent
    for parent in (folder, *folder.parents):
        if _of_torch(parent, problems):
            return required_torch(parent)
        if parent == root:
            break
    return None


def required_torch(root: Path) -> Target | None:
    """The target in the requirements of the project in this folder; None if they do not name torch.

    If several requirements name torch, the oldest lower bound counts. A newest torch is known only
    if each of them excludes newer ones.
    """
    requirements = _of_torch(root)
    lowest: tuple[str, str] | None = None
    highest: tuple[str, str] | None = None
    bounded = bool(requirements)
    for requirement, origin in requirements:
        # A requirement for some platforms only ("torch==2.2.2; platform_machine == ...") does not
        # apply to the program in general.
        low = None if requirement.marker is not None else _oldest_version(requirement)
        if low is not None and (lowest is None or older(low, lowest[0])):
            lowest = low, origin
        high = _newest_version(requirement)
        bounded = bounded and high is not None
        if high is not None and (highest is None or older(highest[0], high)):
            highest = high, origin
    newest = highest if bounded else None
    if lowest is None and newest is None:
        return None
    origin = (newest or lowest or ("", ""))[1]
    return Target(lowest[0] if lowest else None, newest[0] if newest else None, origin, str(root))


def too_old(package: str, since: str, path: Path, root: Path) -> str | None:
    """The requirement that keeps a package older than a version ("requirements.txt: x==1.2").

    Searches the nearest requirements above a file, up to the project's root.
    """
    folder = path.absolute().parent
    for parent in (folder, *folder.parents):
        requirements = [one for one in _of_package(parent, package) if not _only_extras(one[0])]
        if requirements:
            bounds = [(_bound(requirement), origin) for requirement, origin in requirements]
            if all(bound is not None and older(bound, since) for bound, _ in bounds):
                return bounds[0][1]
            return None
        if parent == root:
            break
    return None


def _only_extras(requirement: Requirement) -> bool:
    """Whether a requirement adds extras to another one that has the version: `lightning[app]`."""
    return bool(requirement.extras) and not requirement.specifier


def raise_lower_bound(target: Target, since: str) -> dict[Path, dict[str, str]] | None:
    """The requirements of a project with a lower bound of torch that is not older than a version.

    A bound keeps the form that it has: `torch>=2.1.0` becomes `torch>=2.6.0`.

    Returns:
        The new text of each requirement by its old one, by file. None if a pin or an upper bound of
        torch, or of a library that goes with it, excludes the version.
    """
    if not target.folder or target.lacks(since):
        return None
    root = Path(target.folder)
    minor = as_numbers(since)[1]
    for package, first in (("torchvision", f"0.{minor + 15}"), ("torchaudio", since)):
        if too_old(package, first, root / "setup.py", root) is not None:
            return None
    found: dict[Path, dict[str, str]] = {}
    for name, text in _requirements(root, "torch"):
        requirement = _parse_requirement(text)
        if requirement is None or requirement.name.lower() != "torch" or requirement.marker:
            continue
        low, high = _oldest_version(requirement), _newest_version(requirement)
        if low is None or not older(low, since):
            continue
        if high is not None and older(high, since):
            return None
        new = _LOWER_BOUND.sub(lambda match: _new_bound(match, since), text)
        found.setdefault(root / name, {})[text] = new
    return found or None


def _new_bound(found: re.Match[str], since: str) -> str:
    operator, space, version = found.groups()
    if not older(".".join(version.split(".")[:2]), since):
        return found.group()
    zeros = ".0" * (version.count(".") - since.count("."))
    return f"{'>=' if operator == '>' else operator}{space}{since}{zeros}"


def _bound(requirement: Requirement) -> str | None:
    """The newest release that a requirement allows, or the first that it excludes."""
    found = []
    for spec in requirement.specifier:
        release = spec.version.split(".")
        if spec.operator in {"==", "===", "<=", "<"}:
            found.append(spec.version)
        elif spec.operator == "~=" and len(release) > 2:
            found.append(".".join(release[:2]))
    numbers = [m.group() for m in map(re.compile(r"\d+(\.\d+)?").match, found) if m]
    releases = [number if "." in number else f"{number}.0" for number in numbers]
    return min(releases, key=as_numbers, default=None)


def _of_torch(root: Path, problems: Problems = None) -> list[tuple[Requirement, str]]:
    return _of_package(root, "torch", problems)


def _of_package(
    root: Path, package: str, problems: Problems = None
) -> list[tuple[Requirement, str]]:
    """The requirements of a project for a package, each with its origin."""
    requirements: list[tuple[Requirement, str]] = []
    for origin, text in _requirements(root, package, problems):
        if not text.strip().lower().startswith(package):
            continue
        requirement = _parse_requirement(text)
        if requirement is not None and requirement.name.lower() == package:
            requirements.append((requirement, f"{origin}: {package}{requirement.specifier}"))
    return requirements


def _oldest_version(requirement: Requirement) -> str | None:
    """The oldest torch that a requirement allows."""
    versions = [
        version
        for operator, version in _clauses(requirement)
        if operator in {">=", ">", "==", "===", "~="}
    ]
    return max(versions, key=as_numbers, default=None)


def _newest_version(requirement: Requirement) -> str | None:
    """The newest torch that a requirement allows, if that version is already released."""
    versions: list[str] = []
    for spec in requirement.specifier:
        release = [int(part) for part in re.findall(r"\d+", spec.version.partition("+")[0])]
        if not release:
            continue
        major, minor = release[0], release[1] if len(release) > 1 else 0
        if spec.operator in {"==", "===", "<="} and len(release) > 1:
            versions.append(f"{major}.{minor}")
        elif spec.operator == "~=" and len(release) > 2:
            versions.append(f"{major}.{minor}")
        elif spec.operator == "<" and any(release[2:]):
            versions.append(f"{major}.{minor}")
        elif spec.operator == "<" and minor:
            versions.append(f"{major}.{minor - 1}")
    lowest = min(versions, key=as_numbers, default=None)
    return None if lowest is None or older(NEWEST, lowest) else lowest


def _clauses(requirement: Requirement) -> Iterator[tuple[str, str]]:
    for spec in requirement.specifier:
        numbers = re.match(r"\d+(\.\d+)?", spec.version)
        if numbers is not None:
            yield spec.operator, numbers.group() if numbers.group(1) else f"{numbers.group()}.0"


def _parse_requirement(text: str) -> Requirement | None:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


# Files ------------------------------------------------------------------------------------------


def _requirements(root: Path, package: str, problems: Problems = None) -> Iterator[tuple[str, str]]:
    """The requirements of a project that may be about a package: the file's name, and the text."""
    for name, texts in (
        ("pyproject.toml", _of_pyproject(_text(root / "pyproject.toml", problems), package)),
        ("setup.cfg", _of_setup_cfg(_text(root / "setup.cfg", problems), package)),
    ):
        for text in texts:
            yield name, text
    try:
        files = sorted((*root.glob("requirements*.txt"), *root.glob("requirements/*.txt")))
    except OSError:
        files = []
    for file in files:
        for line in _text(file, problems).splitlines():
            text = re.split(r"(?:^|\s)#|\s--|\s*\\$", line.strip())[0].strip()
            if text.lower().startswith(package):
                yield file.relative_to(root).as_posix(), text


def _text(file: Path, problems: Problems = None) -> str:
    """The text of a requirements file; empty if it cannot be read."""
    try:
        # Package names are ASCII, whatever the encoding of the comments.
        return read_text(file, errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        if problems is not None:
            problems.append((file, error))
        return ""


def _of_pyproject(text: str, package: str) -> Iterator[str]:
    if package not in text:
        return
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        project: Any = tomllib.loads(text).get("project")
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    if not isinstance(project, dict):
        return
    optional = project.get("optional-dependencies")
    lists = [
        project.get("dependencies"),
        *(optional.values() if isinstance(optional, dict) else ()),
    ]
    for one in lists:
        if isinstance(one, list):
            yield from (item for item in one if isinstance(item, str))


def _of_setup_cfg(text: str, package: str) -> Iterator[str]:
    if package not in text:
        return
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    values = [parser.get("options", "install_requires", fallback="")]
    if parser.has_section("options.extras_require"):
        values.extend(value for _, value in parser.items("options.extras_require"))
    for value in values:
        yield from (line.strip() for line in value.splitlines() if line.strip())
