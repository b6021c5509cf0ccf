"""What a workspace blocks is refused wherever it would be rendered, and is its own affair."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from sqlalchemy import select

from app.access import Actor, Role
from app.db import Database
from app.errors import Forbidden, InvalidInput, LimitExceeded
from app.models import (
    Batch,
    BatchState,
    BlockedTerm,
    Campaign,
    ParameterKind,
    RenderJob,
    Upload,
    Variant,
)
from app.services import batches, blocked_terms, campaigns, previews, rerenders, uploads
from app.services.blocked_terms import BlockedTermError
from app.services.parameters import ParameterInput
from app.services.specs import SpecParameter
from app.services.table_findings import Severity, TableError
from app.services.term_index import Term
from app.storage import Storage
from tests.factories import make_workspace
from tests.integration.batch_tools import COUNT, call, launch_and_expand, make_spec, state_of

pytestmark = pytest.mark.usefixtures("weights")

HEADER = b"geography,audience,backdrop\n"


@pytest.fixture
def block(database: Database, actor: Actor) -> Callable[..., list[BlockedTerm]]:
    """Makes these the workspace's terms."""

    def block(*terms: str, reason: str = "") -> list[BlockedTerm]:
        with database.workspace_scope(actor) as session:
            return blocked_terms.replace_blocked_terms(
                session, actor, [Term(text=term, reason=reason) for term in terms]
            )

    return block


Block = Callable[..., list[BlockedTerm]]


class TestList:
    def test_it_is_kept_in_order_and_what_stays_keeps_its_date(
        self, database: Database, actor: Actor, block: Block
    ) -> None:
        first = {row.term: row.created_at for row in block("Nike", "New  York", reason="rival")}
        second = block("Puma", "NIKE")
        assert [(row.term, row.reason) for row in second] == [("Puma", ""), ("NIKE", "")]
        assert second[1].created_at == first["Nike"]
        assert list(first) == ["Nike", "New York"]

    @pytest.mark.parametrize(
        ("terms", "message"),
        [
            (("Nike", "…"), "Term 2: “…” has no letter or digit"),
            (("Nestlé", "x", "nestle"), "Term 3, “nestle”, is the same as term 1, “Nestlé”"),
            (("a" * 201,), "Term 1: the term has 201 characters; 200 are allowed"),
            (("a\0b",), "Term 1: there is an invisible control character"),
            (("Nike", " "), "Term 2: there is no term"),
        ],
    )
    def test_a_term_that_cannot_be_used_is_named_and_nothing_is_changed(
        self, database: Database, block: Block, terms: tuple[str, ...], message: str
    ) -> None:
        block("Puma")
        with pytest.raises(InvalidInput, match=message):
            block(*terms)
        with database.system_scope() as session:
            assert [*session.scalars(select(BlockedTerm.term))] == ["Puma"]

    def test_there_is_a_limit(self, block: Block) -> None:
        assert len(block(*(f"term {n}" for n in range(1_000)))) == 1_000
        with pytest.raises(LimitExceeded, match="1,001 terms; a workspace may block 1,000"):
            block(*(f"term {n}" for n in range(1_001)))

    def test_a_viewer_reads_it_and_may_not_change_it(
        self, database: Database, actor: Actor, block: Block
    ) -> None:
        block("Nike")
        viewer = Actor(workspace_id=actor.workspace_id, role=Role.VIEWER)
        with database.workspace_scope(viewer) as session:
            assert len(blocked_terms.list_blocked_terms(session, viewer)) == 1
        with pytest.raises(Forbidden), database.workspace_scope(viewer) as session:
            blocked_terms.replace_blocked_terms(session, viewer, [])

    def test_another_workspace_is_not_touched(
        self, database: Database, block: Block, create: Callable[..., Batch]
    ) -> None:
        with database.system_scope() as session:
            other = Actor.system(make_workspace(session).id)
        with database.workspace_scope(other) as session:
            blocked_terms.replace_blocked_terms(session, other, [Term(text="sneaker")])
        create()
        assert block("Nike")[0].term == "Nike"
        with database.workspace_scope(other) as session:
            terms = blocked_terms.list_blocked_terms(session, other)
            assert [row.term for row in terms] == ["sneaker"]


class TestPrompts:
    @pytest.mark.parametrize(
        ("prompt", "negative", "field"),
        [
            ("a Nike on {{ backdrop }}", "", "prompt"),
            ("a shoe on {{ backdrop|default('a nike box') }}", "", "prompt"),
            ("{% if backdrop %}nike{% endif %} shoe", "", "prompt"),
            ("a shoe", "no NIKE", "negative_prompt"),
        ],
    )
    def test_a_prompt_with_a_blocked_term_is_not_saved(
        self,
        database: Database,
        actor: Actor,
        campaign: Campaign,
        block: Block,
        prompt: str,
        negative: str,
        field: str,
    ) -> None:
        block("Nike", reason="competitor")
        with (
            pytest.raises(BlockedTermError, match=r"“Nike” \(competitor\)") as caught,
            database.workspace_scope(actor) as session,
        ):
            campaigns.save_prompt_template(
                session, actor, campaign.id, text=prompt, negative_text=negative
            )
        assert caught.value.field == field

    def test_the_name_of_a_placeholder_is_not_rendered_and_not_blocked(
        self, database: Database, actor: Actor, campaign: Campaign, block: Block
    ) -> None:
        block("Nike")
        with database.workspace_scope(actor) as session:
            campaigns.save_prompt_template(session, actor, campaign.id, text="a {{ nike }} shoe")

    def test_values_are_named_by_their_number(
        self, database: Database, actor: Actor, campaign: Campaign, block: Block
    ) -> None:
        with database.workspace_scope(actor) as session:
            campaigns.save_prompt_template(session, actor, campaign.id, text="in {{ city }}")
        block("New York")
        city = ParameterInput(
            name="city", kind=ParameterKind.CHOICE, values=("Oslo", "central new york")
        )
        with (
            pytest.raises(
                BlockedTermError, match="city, value 2: “New York” is a blocked"
            ) as caught,
            database.workspace_scope(actor) as session,
        ):
            campaigns.set_parameters(session, actor, campaign.id, [city])
        assert caught.value.field == "city"


class TestUploads:
    def upload(
        self, database: Database, actor: Actor, storage: Storage, campaign: Campaign, rows: bytes
    ) -> Upload:
        with database.workspace_scope(actor) as session:
            return uploads.create_upload(
                session,
                actor,
                storage,
                campaign_id=campaign.id,
                filename="table.csv",
                stream=io.BytesIO(HEADER + rows),
            )

    def test_a_cell_is_named_by_row_line_column_and_term(
        self, database: Database, actor: Actor, storage: Storage, campaign: Campaign, block: Block
    ) -> None:
        block("Nike", reason="competitor name")
        with pytest.raises(TableError) as caught:
            self.upload(
                database, actor, storage, campaign, b"Oslo,kids,a beach\n\nRome,kids,a NIKE store\n"
            )
        (finding,) = (item for item in caught.value.findings if item.severity is Severity.ERROR)
        assert (finding.code, finding.row, finding.line) == ("blocked_term", 2, 4)
        assert str(finding) == (
            "Row 2 (line 4), column “backdrop”: “Nike” (competitor name) is a blocked term; change"
            " the cell or delete the row"
        )

    def test_rows_that_were_uploaded_before_are_checked_when_they_are_quoted(
        self, database: Database, actor: Actor, storage: Storage, campaign: Campaign, block: Block
    ) -> None:
        upload = self.upload(database, actor, storage, campaign, b"Oslo,kids,a beach\n")
        block("beach")
        names = ("geography", "audience", "backdrop")
        spec = make_spec(
            parameters=tuple(
                SpecParameter(name=name, kind=ParameterKind.CHOICE, column=name) for name in names
            ),
            row_count=1,
        )
        with (
            pytest.raises(TableError, match=r"Row 1 .*“beach”"),
            database.workspace_scope(actor) as session,
        ):
            batches.create_batch(
                session, actor, campaign_id=campaign.id, spec=spec, upload_id=upload.id
            )


class TestBatches:
    def test_values_of_a_batch_are_refused(
        self, create: Callable[..., Batch], block: Block
    ) -> None:
        block(make_spec().parameters[1].values[1])
        with pytest.raises(BlockedTermError, match="value 2") as caught:
            create()
        assert caught.value.field == make_spec().parameters[1].name

    def test_a_term_that_only_the_finished_prompt_holds_is_refused_with_its_variant(
        self, database: Database, actor: Actor, campaign: Campaign, block: Block
    ) -> None:
        with database.workspace_scope(actor) as session:
            campaigns.save_prompt_template(session, actor, campaign.id, text="the red {{ animal }}")
        block("red bull")
        animal = SpecParameter(name="animal", kind=ParameterKind.CHOICE, values=("fox", "bull"))
        with (
            pytest.raises(BlockedTermError, match="Variant 2: “red bull”"),
            database.workspace_scope(actor) as session,
        ):
            batches.create_batch(
                session, actor, campaign_id=campaign.id, spec=make_spec(parameters=(animal,))
            )

    def test_a_term_added_after_the_quote_stops_the_launch_and_the_batch_stays_quoted(
        self, database: Database, actor: Actor, create: Callable[..., Batch], block: Block
    ) -> None:
        batch = create()
        value = make_spec().parameters[0].values[1]
        block(value)
        with pytest.raises(BlockedTermError, match=f"value 2: “{value}”"):
            call(database, actor, batches.launch_batch, batch.id)
        assert state_of(database, batch.id) is BatchState.PREVIEWING
        block("something else")
        launch_and_expand(database, actor, batch.id)
        with database.system_scope() as session:
            assert len([*session.scalars(select(RenderJob.id))]) == COUNT

    def test_variants_are_listed_at_the_launch_where_no_value_alone_holds_the_term(
        self, database: Database, actor: Actor, campaign: Campaign, block: Block
    ) -> None:
        with database.workspace_scope(actor) as session:
            campaigns.save_prompt_template(session, actor, campaign.id, text="the {{ a }} {{ b }}")
            spec = make_spec(
                parameters=(
                    SpecParameter(name="a", kind=ParameterKind.CHOICE, values=("red", "blue")),
                    SpecParameter(name="b", kind=ParameterKind.CHOICE, values=("fox", "bull")),
                )
            )
            batch = batches.create_batch(session, actor, campaign_id=campaign.id, spec=spec)
        block("red bull", "blue fox")
        with pytest.raises(BlockedTermError) as caught:
            call(database, actor, batches.launch_batch, batch.id)
        found = [(item.where, item.term) for item in caught.value.findings]
        assert found == [("Variant 2", "red bull"), ("Variant 3", "blue fox")]
        assert state_of(database, batch.id) is BatchState.PREVIEWING

    def test_a_preview_is_not_rendered_either(
        self, database: Database, actor: Actor, create: Callable[..., Batch], block: Block
    ) -> None:
        batch = create()
        block(make_spec().parameters[0].values[0])
        with (
            pytest.raises(BlockedTermError, match="Variant 1"),
            database.workspace_scope(actor) as session,
        ):
            previews.render_preview(session, actor, batch.id, [0])

    def test_an_edited_prompt_is_not_rendered_again(
        self, database: Database, actor: Actor, create: Callable[..., Batch], block: Block
    ) -> None:
        batch = create()
        launch_and_expand(database, actor, batch.id)
        block("Nike")
        with database.workspace_scope(actor) as session:
            variant = session.scalars(select(Variant).order_by(Variant.ordinal).limit(1)).one()
            with pytest.raises(BlockedTermError, match="The prompt: “Nike”") as caught:
                rerenders.create_rerender(
                    session, actor, variant.id, prompt=f"{variant.prompt}, by nike", seed=1
                )
        assert caught.value.field == "prompt"
        # A value is told as a part of the prompt too, since only that can be edited there.
        block("beach")
        with (
            pytest.raises(BlockedTermError, match="The prompt: “beach”"),
            database.workspace_scope(actor) as session,
        ):
            rerenders.create_rerender(session, actor, variant.id, prompt=variant.prompt, seed=1)
