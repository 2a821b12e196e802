"""What a site may declare: typed models, and a loader whose errors name file and line."""

from hpctools.site.findings import Finding, InvalidSiteError
from hpctools.site.load import load, loads
from hpctools.site.model import Site, SiteAccount, User
from hpctools.site.warnings import warnings

__all__ = ["Finding", "InvalidSiteError", "Site", "SiteAccount", "User", "load", "loads", "warnings"]
