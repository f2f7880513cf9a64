"""Many budgets from a stream of deployments: read line by line, answered by all cores or a cluster, written in order."""
