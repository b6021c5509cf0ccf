"""The `adloom` command: one sentence and exit code 2 for an error that a person can mend."""

from __future__ import annotations

from typing import Any

import click

from app.cli import admin, demo, diagnose, models, run
from app.errors import AppError
from engine.errors import EngineError

ERROR_EXIT = 2


class AdloomGroup(click.Group):
    """A command group that prints our own errors as a sentence instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (AppError, EngineError) as error:
            click.secho(f"adloom: {error}", fg="red", err=True)
            ctx.exit(ERROR_EXIT)


@click.group(cls=AdloomGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(diagnose.version_words(), message="%(version)s")
def main() -> None:
    """Render ad campaigns in bulk: plan, price and render thousands of variants."""


for command in (
    run.up,
    run.down,
    run.web,
    run.worker,
    demo.demo,
    diagnose.doctor,
    diagnose.version,
    models.models,
    admin.migrate,
    admin.create_workspace,
):
    main.add_command(command)
