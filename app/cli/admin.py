"""Commands for set-up by script: the schema and the first workspace."""

from __future__ import annotations

import click

from app.cli.options import Settings, shared_options
from app.config import Config
from app.db import Database
from app.services import schema, workspaces


@click.command()
@shared_options
def migrate(settings: Settings) -> None:
    """Bring the database schema to this version; embedded servers are started if need be."""
    config = Config.from_environment(settings.connected_environment(start=True))
    before = schema.current_revision(config)
    schema.upgrade(config)
    after = schema.current_revision(config)
    click.echo(f"Schema: {after}." if before == after else f"Schema: {before} → {after}.")


@click.command("create-workspace")
@click.option("--name", required=True, help="Name of the workspace.")
@click.option("--owner-name", required=True)
@click.option("--email", required=True, help="The owner signs in with it.")
@click.option("--password", envvar="ADLOOM_OWNER_PASSWORD", help="Asked for when not given.")
@shared_options
def create_workspace(
    settings: Settings, name: str, owner_name: str, email: str, password: str | None
) -> None:
    """Create a workspace with its owner."""
    database = Database(Config.from_environment(settings.connected_environment()))
    try:
        with database.system_scope() as session:
            # Before somebody thinks of a password in vain.
            workspaces.check_new_account(session, email)
        if password is None:
            password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
        with database.system_scope() as session:
            workspaces.create_workspace(
                session, name=name, owner_name=owner_name, email=email, password=password
            )
    finally:
        database.dispose()
    click.echo(f"Created the workspace {name!r}; {email} can sign in.")
