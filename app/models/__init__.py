"""All tables, imported here so that `Base.metadata` is complete."""

from app.models.api_request import IdempotencyKey
from app.models.artifact import Artifact, Review, ReviewState, Usage
from app.models.base import Base
from app.models.batch import (
    Batch,
    BatchCounter,
    BatchDelta,
    BatchState,
    ExpansionMode,
    PauseReason,
    Quote,
    Variant,
)
from app.models.blocked_term import BlockedTerm
from app.models.calibration import CalibrationRecord
from app.models.campaign import (
    SETTING_KINDS,
    Campaign,
    Parameter,
    ParameterKind,
    PromptTemplate,
    Upload,
)
from app.models.draft_state import DraftState
from app.models.render_job import (
    CLAIMABLE_STATES,
    FINAL_STATES,
    LEASE_TOKENS,
    LIVE_STATES,
    TRANSITIONS,
    Attempt,
    JobPurpose,
    JobState,
    RenderJob,
)
from app.models.render_state import RenderState
from app.models.schedule import (
    DeadlinePolicy,
    FireOutcome,
    FireReason,
    MissedPolicy,
    OverlapPolicy,
    Schedule,
    ScheduleFire,
    ScheduleMode,
)
from app.models.share_link import ShareLink
from app.models.webhook import (
    WebhookAttempt,
    WebhookDelivery,
    WebhookDeliveryState,
    WebhookDisabledReason,
    WebhookEndpoint,
    WebhookEvent,
    WebhookEventType,
    WebhookVariantEnd,
)
from app.models.worker import WorkerProgress, WorkPhase
from app.models.workspace import ApiKey, Membership, User, Workspace

__all__ = [
    "CLAIMABLE_STATES",
    "FINAL_STATES",
    "LEASE_TOKENS",
    "LIVE_STATES",
    "SETTING_KINDS",
    "TRANSITIONS",
    "ApiKey",
    "Artifact",
    "Attempt",
    "Base",
    "Batch",
    "BatchCounter",
    "BatchDelta",
    "BatchState",
    "BlockedTerm",
    "CalibrationRecord",
    "Campaign",
    "DeadlinePolicy",
    "DraftState",
    "ExpansionMode",
    "FireOutcome",
    "FireReason",
    "IdempotencyKey",
    "JobPurpose",
    "JobState",
    "Membership",
    "MissedPolicy",
    "OverlapPolicy",
    "Parameter",
    "ParameterKind",
    "PauseReason",
    "PromptTemplate",
    "Quote",
    "RenderJob",
    "RenderState",
    "Review",
    "ReviewState",
    "Schedule",
    "ScheduleFire",
    "ScheduleMode",
    "ShareLink",
    "Upload",
    "Usage",
    "User",
    "Variant",
    "WebhookAttempt",
    "WebhookDelivery",
    "WebhookDeliveryState",
    "WebhookDisabledReason",
    "WebhookEndpoint",
    "WebhookEvent",
    "WebhookEventType",
    "WebhookVariantEnd",
    "WorkPhase",
    "WorkerProgress",
    "Workspace",
]
