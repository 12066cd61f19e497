"""/runs: the list of runs, a run's page, runs side by side, starting them. All is read from run folders.

traces      the runs of a folder, each one's numbers and samples read by cursor
web         the page of a run, and the routes        listing  compare  pipelines   the other pages
health      the doctor and the guard on them         notes    a name, tags and a note
samples     a step's samples, token by token         search   samples of all steps
curves      which metrics are drawn, their points    live     what is new, as Server-Sent Events
progress    how far a run is, in words               talk     a question to a checkpoint
launch      starting, stopping, resuming             forms    a recipe's form     processes  the processes
shared      what these pages share
"""
