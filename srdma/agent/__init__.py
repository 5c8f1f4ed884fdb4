"""The agent: makes and renews the keys of QPs (docs/agent.md)."""
