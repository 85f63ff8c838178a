"""Pictures that stand alone: Gantt charts, frontiers, graphs of operators, as SVG, HTML and data."""
