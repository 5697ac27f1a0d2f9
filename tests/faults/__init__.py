"""What goes wrong between a process and its server, and with processes: replies lost, connections cut, forks, signals."""
