"""Other solvers on the same schedules, each in a process of its own: OR-Tools and HiGHS cannot share one."""
