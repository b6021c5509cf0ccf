"""From what a person filled in to the frozen specification of a batch."""

from __future__ import annotations

from collections.abc import Mapping

from app.models import ExpansionMode, ParameterKind, Upload
from app.services import uploads
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from app.web.campaign_form import CampaignForm


def spec_from_form(form: CampaignForm) -> BatchSpec:
    """The batch of typed values; InvalidInput names the field that is wrong."""
    values = form.values
    return BatchSpec(
        parameters=tuple(
            SpecParameter(name=item.name, kind=ParameterKind(item.kind), values=values[item.name])
            for item in form.parameters
        ),
        mode=form.expansion_mode(),
        settings=SpecSettings(**form.settings().to_dict()),
        seed=form.seed_number(),
        takes=form.takes_count(),
        sample_size=form.sample_count(),
        sample_seed=form.seed_number(),
        rules=form.spec_rules(),
    )


def spec_from_upload(form: CampaignForm, upload: Upload, columns: Mapping[str, str]) -> BatchSpec:
    """The batch of an upload's rows; `columns` maps placeholders to columns.

    A row becomes one variant. Where a placeholder without a column has typed values, it becomes
    one for each of them.
    """
    typed = {name: () if columns.get(name) else given for name, given in form.values.items()}
    return BatchSpec(
        parameters=tuple(
            SpecParameter(
                name=item.name,
                kind=ParameterKind(item.kind),
                values=typed[item.name],
                column=columns.get(item.name),
            )
            for item in form.parameters
        ),
        mode=ExpansionMode.CARTESIAN if any(typed.values()) else ExpansionMode.ZIP,
        settings=SpecSettings(**form.settings().to_dict()),
        seed=form.seed_number(),
        takes=form.takes_count(),
        sample_seed=form.seed_number(),
        row_id_column=uploads.find_row_id_column(upload.header),
        row_count=upload.row_count,
        rules=form.spec_rules(),
    )
