"""Jobs whose worker is lost: who gets them back, what it is charged, when it is given up."""

from __future__ import annotations

from sqlalchemy import select, update

from app.db import Database
from app.models import (
    Batch,
    BatchState,
    JobState,
    RenderJob,
)
from app.services import leases
from tests.factories import make_jobs
from tests.integration.lease_tools import (
    PassTime,
    ReadJob,
    claim,
    claim_some,
    fail,
    rescue,
    say_in_hand,
    succeed,
)


class TestRescue:
    def test_a_live_lease_is_left_alone(self, database: Database, batch: Batch) -> None:
        with database.system_scope() as session:
            make_jobs(session, batch, ["a"])
        claim(database)
        assert rescue(database) == 0

    def test_a_group_goes_back_whole_when_its_worker_is_lost_and_as_singles_the_second_time(
        self, database: Database, batch: Batch, read_job: ReadJob, pass_time: PassTime
    ) -> None:
        with database.system_scope() as session:
            ids = make_jobs(session, batch, ["a", "b", "c"])
        claim(database)
        pass_time(61)
        assert rescue(database) == 3
        job = read_job(ids[0])
        assert (job.state, job.error_code) == (JobState.RETRYABLE, "worker_lost")
        whole = claim_some(database)
        assert [job.job_id for job in whole.jobs] == ids
        pass_time(61)
        assert rescue(database) == 3
        groups = [claim_some(database, f"worker-{number}") for number in range(3)]
        assert [len(group.jobs) for group in groups] == [1, 1, 1]
        assert {group.jobs[0].job_id for group in groups} == set(ids)
        assert claim(database) is None

    def test_only_what_was_in_hand_is_charged_when_a_worker_is_lost(
        self, database: Database, batch: Batch, read_job: ReadJob, pass_time: PassTime
    ) -> None:
        with database.system_scope() as session:
            ids = make_jobs(session, batch, ["a", "b", "c", "d"])
        group = claim_some(database)
        succeed(database, ids[0], group.token)
        say_in_hand(database, batch, group, ids[:2])
        pass_time(61)
        assert rescue(database) == 3
        assert [read_job(job_id).start_count for job_id in ids] == [1, 1, 0, 0]
        again = claim_some(database)
        assert [job.job_id for job in again.jobs] == ids[1:], "they share their steps as before"
        say_in_hand(database, batch, again, ids[1:2])
        pass_time(61)
        rescue(database)
        sizes = sorted(len(claim_some(database, f"worker-{number}").jobs) for number in range(2))
        assert sizes == [1, 2], "the one that was in hand twice goes alone"

    def test_all_are_charged_when_what_was_in_hand_has_ended(
        self, database: Database, batch: Batch, read_job: ReadJob, pass_time: PassTime
    ) -> None:
        with database.system_scope() as session:
            ids = make_jobs(session, batch, ["a", "b", "c"])
        group = claim_some(database)
        say_in_hand(database, batch, group, ids[:1])
        succeed(database, ids[0], group.token)
        pass_time(61)
        assert rescue(database) == 2
        assert [read_job(job_id).start_count for job_id in ids] == [1, 1, 1]

    def test_the_last_start_of_a_job_that_failed_is_made_alone(
        self, database: Database, batch: Batch, pass_time: PassTime
    ) -> None:
        with database.system_scope() as session:
            ids = make_jobs(session, batch, ["a", "b"])
        for _ in range(2):
            group = claim_some(database)
            assert len(group.jobs) == 2
            fail(database, ids[0], group.token, is_retryable=True)
            with database.system_scope() as session:
                leases.release(session, token=group.token)
            pass_time(3_600, "scheduled_at")
        groups = [claim_some(database, f"worker-{number}") for number in range(2)]
        assert [len(group.jobs) for group in groups] == [1, 1]

    def test_a_job_that_kills_its_worker_is_quarantined_and_its_siblings_finish(
        self, database: Database, batch: Batch, read_job: ReadJob, pass_time: PassTime
    ) -> None:
        prompts = [f"prompt {number}" for number in range(5)]
        with database.system_scope() as session:
            ids = make_jobs(session, batch, prompts)
        poison = ids[2]
        while (group := claim(database)) is not None:
            if any(job.job_id == poison for job in group.jobs):
                pass_time(61)  # the worker is dead
                rescue(database)
            else:
                for job in group.jobs:
                    succeed(database, job.job_id, group.token)
        job = read_job(poison)
        assert job.state is JobState.QUARANTINED
        assert job.start_count == 3
        assert job.error_code == "worker_lost"
        assert "last of its tries" in (job.error_message or "")
        others = {read_job(other).state for other in ids if other != poison}
        assert others == {JobState.SUCCEEDED}
        with database.system_scope() as session:
            assert session.scalar(select(Batch.state)) is BatchState.COMPLETED

    def test_a_render_that_hangs_is_ended_though_its_worker_still_beats(
        self, database: Database, batch: Batch, read_job: ReadJob, pass_time: PassTime
    ) -> None:
        with database.system_scope() as session:
            ids = make_jobs(session, batch, ["a", "b"])
        group = claim_some(database, hard_deadline_s=100.0)
        pass_time(101)
        with database.system_scope() as session:
            assert leases.renew(session, worker="worker-1").held == set(ids)
        assert rescue(database) == 2
        assert {read_job(job_id).error_code for job_id in ids} == {"deadline_exceeded"}
        assert not succeed(database, ids[0], group.token)

    def test_later_jobs_of_a_group_have_more_time(
        self, database: Database, batch: Batch, pass_time: PassTime
    ) -> None:
        with database.system_scope() as session:
            first, second = make_jobs(session, batch, ["a", "b"])
        group = claim_some(database, hard_deadline_s=100.0)
        succeed(database, first, group.token)
        pass_time(101, "deadline_at")
        assert rescue(database) == 0
        pass_time(100, "deadline_at")
        assert rescue(database) == 1
        assert not succeed(database, second, group.token)

    def test_a_running_job_without_an_expiry_counts_as_lost(
        self, database: Database, batch: Batch
    ) -> None:
        with database.system_scope() as session:
            make_jobs(session, batch, ["a"])
        claim(database)
        with database.system_scope() as session:
            session.execute(update(RenderJob).values(lease_expires_at=None))
        assert rescue(database) == 1
