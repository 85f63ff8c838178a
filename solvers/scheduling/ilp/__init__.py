"""The mixed-integer program, solved by HiGHS through Pyomo."""
