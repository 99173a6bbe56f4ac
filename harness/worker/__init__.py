"""Inside a measuring process: gates and rounds. The only place with torch, beside `metrics/*/worker`."""
