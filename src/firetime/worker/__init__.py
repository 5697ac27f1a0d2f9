"""A worker: the road in and its upkeep, composed, started and stopped. Alone in the read path it creates asyncio tasks."""
