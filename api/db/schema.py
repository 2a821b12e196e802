"""All tables of the store: every module that declares some is imported here."""

from __future__ import annotations

from api.db import access_models, bill_models, budget_models, login_models, models
from api.db.base import Base

__all__ = ["Base", "access_models", "bill_models", "budget_models", "login_models", "models"]
