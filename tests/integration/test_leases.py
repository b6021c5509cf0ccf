"""Leases between workers: who gets what, what an old token can do, what is rescued."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, select, update

from app.db import Database
from app.models import (
    Artifact,
    Attempt,
    Batch,
    BatchState,
    JobState,
    Quote,
    RenderJob,
    Usage,
    Workspace,
)
from app.services import claiming, leases
from app.services.leases import NewUsage
from app.services.ranking import Candidate
from tests.factories import make_artifact_files, make_batch, make_campaign, make_jobs
from tests.integration.lease_tools import (
    PassTime,
    ReadJob,
    claim,
    claim_some,
    count,
    fail,
    rescue,
    succeed,
)


class TestClaim:
    def test_a_group_is_claimed_whole_and_in_its_order(
        self, database: Database, batch: Batch
    ) -> None:
        with database.system_scope() as session:
            ids = make_jobs(session, batch, ["a", "b", "c"])
        group = claim_some(database)
        assert [job.job_id for job in group.jobs] == ids
        assert [job.prompt for job in group.jobs] == ["a", "b", "c"]
        assert group.jobs[0].to_request().request_id == str(ids[0])
        assert claim(database) is None

    def test_two_claims_at_once_never_split_a_group_and_never_take_one_twice(
        self, database: Database, batch: Batch
    ) -> None:
        with database.system_scope() as session:
            make_jobs(session, batch, ["a", "b", "c"], ["d", "e", "f"])
        with database.system_scope() as first, database.system_scope() as second:
            one = leases.claim(first, worker="worker-1")
            other = leases.claim(second, worker="worker-2")
            third = leases.claim(second, worker="worker-2")
        assert one is not None
        assert other is not None
        assert third is None
        assert one.token != other.token
        assert {len(one.jobs), len(other.jobs)} == {3}
        assert one.group_key != other.group_key

    def test_a_worker_waits_for_nobody_when_the_only_group_is_being_claimed(
        self, database: Database, batch: Batch
    ) -> None:
        with database.system_scope() as session:
            make_jobs(session, batch, ["a", "b"])
        with database.system_scope() as first, database.system_scope() as second:
            assert leases.claim(first, worker="worker-1") is not None
            assert leases.claim(second, worker="worker-2") is None

    def test_a_part_claimed_at_the_same_moment_keeps_the_whole_group(
        self, database: Database, batch: Batch
    ) -> None:
        with database.system_scope() as session:
            make_jobs(session, batch, ["a", "b", "c"])
        with database.system_scope() as first, database.system_scope() as second:
            part = leases.claim(first, worker="worker-1", limit=2)
            assert part is not None
            assert len(part.jobs) == 2
            # The third job is locked by nobody, but its group is.
            assert leases.claim(second, worker="worker-2", limit=2) is None

    def test_a_part_claimed_between_ranking_and_locking_keeps_the_whole_group(
        self, database: Database, batch: Batch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with database.system_scope() as session:
            make_jobs(session, batch, ["a", "b", "c"])
        rank = claiming.rank_candidates

        def rank_and_lose(*args: Any, **options: Any) -> list[Candidate]:
            candidates = rank(*args, **options)
            with monkeypatch.context() as patch:
                patch.setattr(claiming, "rank_candidates", rank)
                claim(database, "worker-1", limit=2)
            return candidates

        monkeypatch.setattr(claiming, "rank_candidates", rank_and_lose)
        assert claim(database, "worker-2") is None

    def test_the_rest_of_a_group_waits_until_the_claimed_part_has_ended(
        self, database: Database, batch: Batch
    ) -> None:
        with database.system_scope() as session:
            make_jobs(session, batch, ["a", "b", "c"])
        part = claim_some(database, limit=2)
        assert [job.prompt for job in part.jobs] == ["a", "b"]
        assert claim(database, "worker-2") is None
        for job in part.jobs:
            assert succeed(database, job.job_id, part.token)
        assert [job.prompt for job in claim_some(database, "worker-2").jobs] == ["c"]

    @pytest.mark.parametrize("state", [BatchState.PAUSED, BatchState.CANCELLED, BatchState.FAILED])
    def test_nothing_is_claimed_from_a_batch_that_is(
        self, database: Database, batch: Batch, state: BatchState
    ) -> None:
        with database.system_scope() as session:
            make_jobs(session, batch, ["a"])
            session.execute(update(Batch).values(state=state))
        assert claim(database) is None

    def test_a_job_is_not_claimed_before_its_time(
        self, database: Database, batch: Batch, pass_time: PassTime
    ) -> None:
        with database.system_scope() as session:
            make_jobs(session, batch, ["a"])
        pass_time(-60, "scheduled_at")
        assert claim(database) is None
        pass_time(61, "scheduled_at")
        assert claim(database) is not None

    def test_every_start_is_an_attempt(self, database: Database, batch: Batch) -> None:
        with database.system_scope() as session:
            [job_id] = make_jobs(session, batch, ["a"])
        group = claim_some(database)
        assert group.jobs[0].number == 1
        succeed(database, job_id, group.token)
        with database.system_scope() as session:
            attempt = session.scalars(select(Attempt)).one()
        assert (attempt.number, attempt.worker, attempt.outcome) == (1, "worker-1", "succeeded")
        assert attempt.finished_at is not None


class TestReuse:
    def test_equal_pixels_claimed_in_the_same_instant_are_rendered_once(
        self, database: Database, batch: Batch, read_job: ReadJob, pass_time: PassTime
    ) -> None:
        with database.system_scope() as session:
            first, twin = make_jobs(session, batch, ["a"], ["a"])
        with database.system_scope() as one, database.system_scope() as other:
            group = leases.claim(one, worker="worker-1")
            # Nothing of the first claim is committed when the second one looks.
            assert leases.claim(other, worker="worker-2") is None
        assert group is not None
        assert {read_job(first).state, read_job(twin).state} == {JobState.RUNNING, JobState.QUEUED}
        assert succeed(database, group.jobs[0].job_id, group.token)
        pass_time(60, "scheduled_at")
        assert claim(database) is None, "the twin takes what is there now"
        with database.system_scope() as session:
            usage = session.scalars(select(Usage)).all()
        assert sorted(row.is_reused for row in usage) == [False, True]
        assert read_job(first).artifact_id == read_job(twin).artifact_id

    def test_equal_pixels_in_two_groups_are_rendered_once(
        self, database: Database, batch: Batch, read_job: ReadJob
    ) -> None:
        with database.system_scope() as session:
            first, twin = make_jobs(session, batch, ["a"], ["a"])
        group = claim_some(database)
        # The other worker leaves the twin alone while the first is being rendered …
        assert claim(database, "worker-2") is None
        assert succeed(database, group.jobs[0].job_id, group.token)
        with database.system_scope() as session:
            session.execute(update(RenderJob).values(scheduled_at=func.now()))
        # … and then it is there already.
        assert claim(database, "worker-2") is None
        jobs = read_job(first), read_job(twin)
        assert [job.state for job in jobs] == [JobState.SUCCEEDED] * 2
        assert jobs[0].artifact_id == jobs[1].artifact_id
        assert count(database, Artifact) == 1
        with database.system_scope() as session:
            usage = session.execute(select(Usage.is_reused, Usage.cost_micros)).all()
            state = session.scalar(select(Batch.state))
        assert sorted(tuple(row) for row in usage) == [(False, 0), (True, 0)]
        assert state is BatchState.COMPLETED

    def test_a_batch_that_asks_for_fresh_renders_takes_no_older_artifact(
        self, database: Database, batch: Batch, workspace: Workspace
    ) -> None:
        with database.system_scope() as session:
            make_jobs(session, batch, ["a"])
        group = claim_some(database)
        succeed(database, group.jobs[0].job_id, group.token)
        with database.system_scope() as session:
            campaign = make_campaign(session, workspace_id=workspace.id)
            fresh = make_batch(session, campaign=campaign, spec={"force_render": True})
            make_jobs(session, fresh, ["a"])
        assert claim_some(database).jobs[0].prompt == "a"

    def test_another_workspace_does_not_reuse_ours(
        self, database: Database, batch: Batch, foreign_batch: Batch
    ) -> None:
        with database.system_scope() as session:
            make_jobs(session, batch, ["a"])
            make_jobs(session, foreign_batch, ["a"])
        for _ in range(2):
            group = claim_some(database)
            succeed(database, group.jobs[0].job_id, group.token)
        assert count(database, Artifact) == 2


class TestFinish:
    def test_a_stale_lease_cannot_finish_a_job(
        self, database: Database, batch: Batch, read_job: ReadJob, pass_time: PassTime
    ) -> None:
        with database.system_scope() as session:
            [job_id] = make_jobs(session, batch, ["a"])
        old = claim_some(database)
        pass_time(61)
        assert rescue(database) == 1
        assert not succeed(database, job_id, old.token)
        new = claim_some(database, "worker-2")
        assert not succeed(database, job_id, old.token)
        assert not fail(database, job_id, old.token, is_retryable=False)
        assert read_job(job_id).state is JobState.RUNNING
        assert count(database, Artifact) == 0
        assert count(database, Usage) == 0

        assert succeed(database, job_id, new.token)
        assert not succeed(database, job_id, new.token)
        assert count(database, Artifact) == 1
        assert count(database, Usage) == 1

    def test_the_charge_is_the_planned_work_at_most(self, database: Database, batch: Batch) -> None:
        with database.system_scope() as session:
            make_jobs(session, batch, ["a", "b"])
            session.add(
                Quote(
                    workspace_id=batch.workspace_id, batch_id=batch.id, variant_count=2,
                    full_units=20, shared_units=16, rate_micros_per_unit=100,
                    full_cost_micros=2_000, cost_micros=1_600, currency="USD", details={},
                )
            )  # fmt: skip
        group = claim_some(database)
        for job, units in zip(group.jobs, (500.0, 2.5), strict=True):
            with database.system_scope() as session:
                leases.finish_succeeded(
                    session,
                    job_id=job.job_id,
                    token=group.token,
                    artifact=make_artifact_files(),
                    usage=NewUsage(units=units, render_s=1.0),
                )
        with database.system_scope() as session:
            costs = session.scalars(select(Usage.cost_micros).order_by(Usage.units)).all()
        assert costs == [250, 800]

    def test_a_failure_that_may_pass_is_tried_again_later_and_at_last_fails(
        self, database: Database, batch: Batch, read_job: ReadJob, pass_time: PassTime
    ) -> None:
        with database.system_scope() as session:
            [job_id] = make_jobs(session, batch, ["a"])
        for start in range(1, 4):
            group = claim_some(database)
            assert fail(database, job_id, group.token, is_retryable=True)
            job = read_job(job_id)
            assert job.start_count == start
            assert job.state is (JobState.RETRYABLE if start < 3 else JobState.FAILED)
            assert claim(database) is None
            pass_time(3_600, "scheduled_at")
        assert read_job(job_id).error_message == "It went wrong."

    def test_a_failure_that_stays_is_not_tried_again(
        self, database: Database, batch: Batch, read_job: ReadJob
    ) -> None:
        with database.system_scope() as session:
            [job_id] = make_jobs(session, batch, ["a"])
        assert fail(database, job_id, claim_some(database).token, is_retryable=False)
        job = read_job(job_id)
        assert (job.state, job.error_code) == (JobState.FAILED, "nan")
        assert job.finished_at is not None


class TestRenewAndRelease:
    def test_a_heartbeat_keeps_the_lease(
        self, database: Database, batch: Batch, pass_time: PassTime
    ) -> None:
        with database.system_scope() as session:
            ids = make_jobs(session, batch, ["a", "b"])
        claim(database)
        pass_time(50, "lease_expires_at")
        with database.system_scope() as session:
            renewal = leases.renew(session, worker="worker-1")
        assert renewal.held == set(ids)
        assert not renewal.cancelled
        pass_time(50, "lease_expires_at")
        assert rescue(database) == 0

    def test_a_heartbeat_tells_what_was_taken_away_and_what_is_cancelled(
        self, database: Database, batch: Batch
    ) -> None:
        with database.system_scope() as session:
            first, second = make_jobs(session, batch, ["a", "b"])
        group = claim_some(database)
        succeed(database, first, group.token)
        with database.system_scope() as session:
            session.execute(update(Batch).values(state=BatchState.CANCELLED))
            renewal = leases.renew(session, worker="worker-1")
            nobody = leases.renew(session, worker="worker-2")
        assert renewal.held == renewal.cancelled == {second}
        assert not nobody.held

    def test_what_is_handed_back_costs_no_start(
        self, database: Database, batch: Batch, read_job: ReadJob
    ) -> None:
        with database.system_scope() as session:
            first, second, third = make_jobs(session, batch, ["a", "b", "c"])
        group = claim_some(database)
        succeed(database, first, group.token)
        with database.system_scope() as session:
            assert leases.release(session, token=group.token, job_ids=[second]) == 1
            assert leases.release(session, token=group.token) == 1
            assert leases.release(session, token=group.token) == 0
        for job_id in (second, third):
            job = read_job(job_id)
            assert (job.state, job.start_count, job.lease_token) == (JobState.QUEUED, 0, None)
        again = claim_some(database, "worker-2")
        assert [job.job_id for job in again.jobs] == [second, third]
        assert again.jobs[0].number == 1

    def test_a_cancelled_render_ends_its_job_only_when_the_batch_is_cancelled(
        self, database: Database, batch: Batch, read_job: ReadJob
    ) -> None:
        with database.system_scope() as session:
            first, second = make_jobs(session, batch, ["a", "b"])
        group = claim_some(database)
        fail(database, first, group.token, is_retryable=False, code="cancelled")
        job = read_job(first)
        assert (job.state, job.start_count) == (JobState.QUEUED, 0)
        with database.system_scope() as session:
            session.execute(update(Batch).values(state=BatchState.CANCELLED))
        fail(database, second, group.token, is_retryable=False, code="cancelled")
        assert read_job(second).state is JobState.CANCELLED
