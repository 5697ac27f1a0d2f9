"""What tests are made with: four real servers, a proxy that breaks things, worker processes, and waiting."""
