"""Everything that touches Redis: keys, scripts, connections, the embedded server. Nothing above imports its client."""
