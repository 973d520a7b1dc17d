//! Watches a running feed: Prometheus metrics, traces, and a live view in the terminal.
