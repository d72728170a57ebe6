from tableferry.fleet.queue.migrating import upgrade as upgrade
