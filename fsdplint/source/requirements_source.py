"""A file of a project's requirements: `requirements.txt`, `pyproject.toml`, `setup.cfg`."""

from __future__ import annotations

from fsdplint.source.config_source import ConfigError, ConfigSource, Mapping


class RequirementsSource(ConfigSource):
    """A file of requirements. No rule reads it; a migration may raise a bound in it."""

    def with_text(self, text: str) -> RequirementsSource:
        return RequirementsSource(self.path, text, encoding=self.encoding, bom=self.bom)

    def validate(self) -> None:
        """Any text is valid."""

    @property
    def top(self) -> Mapping:
        raise ConfigError("the file holds requirements")
