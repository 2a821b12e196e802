"""The QoS of elastic runs' replica jobs: one word that the site file, hp-submit and the doctor agree on."""

from __future__ import annotations

ELASTIC_QOS = "elastic"
