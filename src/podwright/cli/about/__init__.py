"""Commands about the commands: completion, manual pages, versions, plug-ins, contexts."""
