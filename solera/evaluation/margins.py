"""The verdict's margins: how much worse a student may be and still have kept something.

Those of accuracy, calibration and rejection belong to the task (`Task.margins`, solera/tasks/…), and so does when it is
over-confident. Here are those that all tasks share. `solera.evaluation.verdict` states the rules.
"""

AUROC_MARGIN = 0.05  # of telling an unfamiliar set from the test set by knowledge
LEAST_RHO = 0.5  # the least rank correlation with the ensemble's knowledge that is its order
NO_KNOWLEDGE = 1e-6  # of the total: less knowledge than that is rounding
LEAST_EXAMPLES = 100  # of a set: bootstrap intervals of fewer are not believed
FASTER = 1.5  # times: a student so much faster than a single member is a gain
