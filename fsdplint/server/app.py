"""Puts the language server together."""

from __future__ import annotations

from lsprotocol import types

from fsdplint.server.answers import code_actions, hover
from fsdplint.server.documents import notebooks, text_documents
from fsdplint.server.language_server import Server
from fsdplint.source.config_files import SUFFIXES as CONFIGS
from fsdplint.source.files import SUFFIXES


def create() -> Server:
    """The server with all of its handlers."""
    server = Server()

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.begin(params.initialization_options)

    @server.feature(types.INITIALIZED)
    def register_watcher(_: types.InitializedParams) -> None:
        workspace = server.client_capabilities.workspace
        watching = workspace.did_change_watched_files if workspace is not None else None
        if watching is None or not watching.dynamic_registration:
            return
        endings = ",".join(one.lstrip(".") for one in (*SUFFIXES, *CONFIGS, ".toml"))
        options = types.DidChangeWatchedFilesRegistrationOptions(
            [types.FileSystemWatcher(f"**/*.{{{endings}}}")]
        )
        registration = types.Registration(
            "fsdplint-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options
        )
        server.client_register_capability(types.RegistrationParams([registration]))
        if server.schedule is not None:
            server.schedule.checker.index.files_are_watched = True

    @server.feature(types.SHUTDOWN)
    def shutdown(_: None) -> None:
        if server.schedule is not None:
            server.schedule.stop()

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configuration(params: types.DidChangeConfigurationParams) -> None:
        server.configure(params.settings)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files_changed(_: types.DidChangeWatchedFilesParams) -> None:
        if server.schedule is not None:
            server.schedule.forget()

    text_documents(server)
    notebooks(server)
    code_actions(server)
    hover(server)
    return server
