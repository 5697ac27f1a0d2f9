"""What tests are made with: four real servers, a cluster and sentinels, a proxy that breaks things, worker processes, and waiting."""
