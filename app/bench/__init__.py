"""Workloads that are replayed on an engine, and what their steps took."""
