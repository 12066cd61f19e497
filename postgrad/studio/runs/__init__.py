"""/runs: the list of runs, a run's page, runs side by side, starting them. All is read from run folders.

traces      the runs of a folder, each one's numbers read by cursor
web         the page of a run, and the routes        listing  compare  pipelines   the other pages
samples     a step's samples, token by token         curves   which metrics are drawn, and their points
live        what is new, as Server-Sent Events       progress how far a run is, in words
launch      starting, stopping, resuming             forms    a recipe's form     processes  the processes
shared      what these pages share
"""
