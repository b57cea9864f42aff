"""What solvers leave behind: frozen records of plain numbers."""
