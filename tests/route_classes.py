"""What each page must refuse: every endpoint of the dashboard declares its kind and its action.

Routes of the API declare theirs where they are made (app.api.routes).
"""

from __future__ import annotations

from typing import Final

from app.access import Action
from app.api.routes import RouteKind

PUBLIC, COLLECTION = RouteKind.PUBLIC, RouteKind.COLLECTION
OBJECT, CREATE = RouteKind.OBJECT, RouteKind.CREATE
VIEW, EDIT, LAUNCH = Action.VIEW, Action.EDIT, Action.LAUNCH
REVIEW, MANAGE = Action.REVIEW, Action.MANAGE

PAGES: Final[dict[str, tuple[RouteKind, Action]]] = {
    "api_keys.create": (CREATE, MANAGE),
    "api_keys.index": (COLLECTION, MANAGE),
    "api_keys.new": (CREATE, MANAGE),
    "api_keys.revoke": (OBJECT, MANAGE),
    "batches.act": (OBJECT, LAUNCH),
    "batches.create": (OBJECT, EDIT),
    "batches.create_from_upload": (OBJECT, EDIT),
    "batches.duplicate": (OBJECT, EDIT),
    "batches.progress": (OBJECT, VIEW),
    "batches.sharing": (OBJECT, VIEW),
    "batches.show": (OBJECT, VIEW),
    "batches.tiles": (OBJECT, VIEW),
    "campaigns.archive": (OBJECT, EDIT),
    "campaigns.create": (CREATE, EDIT),
    "campaigns.duplicate": (OBJECT, EDIT),
    "campaigns.edit": (OBJECT, EDIT),
    "campaigns.index": (COLLECTION, VIEW),
    "campaigns.new": (CREATE, EDIT),
    "campaigns.restore": (OBJECT, EDIT),
    "campaigns.show": (OBJECT, VIEW),
    "campaigns.update": (OBJECT, EDIT),
    "exports.archive": (OBJECT, VIEW),
    "exports.contact_sheet": (OBJECT, VIEW),
    "exports.show": (OBJECT, VIEW),
    "health.live": (PUBLIC, VIEW),
    "health.ready": (PUBLIC, VIEW),
    "login.create": (PUBLIC, VIEW),
    "login.enter": (PUBLIC, VIEW),
    "login.leave": (PUBLIC, VIEW),
    "login.setup": (PUBLIC, VIEW),
    "login.show": (PUBLIC, VIEW),
    "media.show": (OBJECT, VIEW),
    "missing_files.render": (OBJECT, EDIT),
    "missing_files.show": (OBJECT, VIEW),
    "places.suggest": (COLLECTION, VIEW),
    "previews.preview": (CREATE, VIEW),
    "previews.render_options": (CREATE, VIEW),
    "promotions.create": (OBJECT, EDIT),
    "promotions.set_drafts": (OBJECT, EDIT),
    "quality.choose": (OBJECT, EDIT),
    "reviewing.choose": (OBJECT, VIEW),
    "reviewing.compare": (OBJECT, VIEW),
    "reviewing.create": (OBJECT, REVIEW),
    "reviewing.undo": (OBJECT, REVIEW),
    "row_use.download": (OBJECT, VIEW),
    "row_use.show": (OBJECT, VIEW),
    # A link to review is opened without an account: its token is the permission.
    "share_links.create": (OBJECT, EDIT),
    "spend_caps.update": (OBJECT, LAUNCH),
    "share_links.index": (OBJECT, EDIT),
    "share_links.media": (PUBLIC, VIEW),
    "share_links.review": (PUBLIC, VIEW),
    "share_links.revoke": (OBJECT, EDIT),
    "share_links.show": (PUBLIC, VIEW),
    "static": (PUBLIC, VIEW),
    "uploads.answer": (OBJECT, EDIT),
    "uploads.create": (OBJECT, EDIT),
    "uploads.download": (OBJECT, VIEW),
    "uploads.new": (OBJECT, EDIT),
    "uploads.original": (OBJECT, VIEW),
    "uploads.prices": (OBJECT, EDIT),
    "uploads.sample": (OBJECT, VIEW),
    "uploads.show": (OBJECT, VIEW),
    "variants.lightbox": (OBJECT, VIEW),
    "variants.live": (OBJECT, VIEW),
    "variants.rerender": (OBJECT, LAUNCH),
    "variants.review": (OBJECT, REVIEW),
    "variants.show": (OBJECT, VIEW),
    "webhooks.act": (OBJECT, MANAGE),
    "webhooks.create": (CREATE, MANAGE),
    "webhooks.delete": (OBJECT, MANAGE),
    "webhooks.delivery": (OBJECT, MANAGE),
    "webhooks.edit": (OBJECT, MANAGE),
    "webhooks.index": (COLLECTION, MANAGE),
    "webhooks.new": (CREATE, MANAGE),
    "webhooks.replay": (OBJECT, MANAGE),
    "webhooks.replay_one": (OBJECT, MANAGE),
    "webhooks.rotate": (OBJECT, MANAGE),
    "webhooks.show": (OBJECT, MANAGE),
    "webhooks.update": (OBJECT, MANAGE),
}
