"""Plans on chips that are given: the best one, those on pools of unlike devices, and recorded ones played again."""
