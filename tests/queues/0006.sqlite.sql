-- A queue in SQLite that revision 0006 (commit 8f8bfd17) wrote, with jobs in each state and three archived jobs.
BEGIN TRANSACTION;
CREATE TABLE events (
	event_id INTEGER NOT NULL, 
	task_id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	day DATE NOT NULL, 
	was VARCHAR(30) NOT NULL, 
	state VARCHAR(30) NOT NULL, 
	desired_state VARCHAR(30) NOT NULL, 
	paused BOOLEAN NOT NULL, 
	pause_reason VARCHAR(512) NOT NULL, 
	worker VARCHAR(255) NOT NULL, 
	PRIMARY KEY (event_id)
);
INSERT INTO "events" VALUES(1,2,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(2,3,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(3,3,'2026-02-03 09:30:15.123457','2026-02-03','Ready','WritesBlocked','IcebergReady',0,'None','migrate-1');
INSERT INTO "events" VALUES(4,4,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(5,4,'2026-02-03 09:30:15.123457','2026-02-03','Ready','IcebergReady','IcebergPrimary',0,'None','migrate-1');
INSERT INTO "events" VALUES(6,5,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(7,5,'2026-02-03 09:30:15.123457','2026-02-03','Ready','IcebergPrimary','WritesUnblocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(8,6,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(9,6,'2026-02-03 09:30:15.123457','2026-02-03','Ready','WritesUnblocked','HiveDropped',0,'None','migrate-1');
INSERT INTO "events" VALUES(10,7,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(11,7,'2026-02-03 09:30:15.123457','2026-02-03','Ready','WritesUnblocked','WritesUnblocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(12,8,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(13,8,'2026-02-03 09:30:15.123457','2026-02-03','Ready','HiveDropped','HiveDropped',0,'None','migrate-1');
INSERT INTO "events" VALUES(14,9,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(15,9,'2026-02-03 09:30:15.123457','2026-02-03','Ready','Ready','IcebergDropped',0,'None','migrate-1');
INSERT INTO "events" VALUES(16,10,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(17,10,'2026-02-03 09:30:15.123457','2026-02-03','Ready','WritesUnblocked','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(18,11,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(19,11,'2026-02-03 09:30:15.123457','2026-02-03','Ready','HiveDropped','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(20,12,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(21,12,'2026-02-03 09:30:15.123457','2026-02-03','Ready','WritesBlocked','SyncHive',0,'None','migrate-1');
INSERT INTO "events" VALUES(22,13,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(23,13,'2026-02-03 09:30:15.123457','2026-02-03','Ready','IcebergPrimary','SyncHive',0,'None','migrate-1');
INSERT INTO "events" VALUES(24,14,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(25,14,'2026-02-03 09:30:15.123457','2026-02-03','Ready','SyncHive','HivePrimary',0,'None','migrate-1');
INSERT INTO "events" VALUES(26,15,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(27,15,'2026-02-03 09:30:15.123457','2026-02-03','Ready','WritesBlocked','HivePrimary',0,'None','migrate-1');
INSERT INTO "events" VALUES(28,16,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(29,16,'2026-02-03 09:30:15.123457','2026-02-03','Ready','IcebergReady','HivePrimary',0,'None','migrate-1');
INSERT INTO "events" VALUES(30,17,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(31,17,'2026-02-03 09:30:15.123457','2026-02-03','Ready','HivePrimary','WritesUnblocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(32,18,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(33,18,'2026-02-03 09:30:15.123457','2026-02-03','Ready','WritesUnblocked','IcebergDropped',0,'None','migrate-1');
INSERT INTO "events" VALUES(34,19,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(35,19,'2026-02-03 09:30:15.123457','2026-02-03','Ready','IcebergDropped','IcebergDropped',1,'REVERTED','migrate-1');
INSERT INTO "events" VALUES(36,20,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(37,20,'2026-02-03 09:30:15.123457','2026-02-03','Ready','WritesBlocked','IcebergReady',0,'None','migrate-1');
INSERT INTO "events" VALUES(38,20,'2026-02-27 09:30:15.123457','2026-02-27','WritesBlocked','WritesBlocked','IcebergReady',1,'ROWS_DIFFER: 3 rows of ''a:b''','migrate-1');
INSERT INTO "events" VALUES(39,21,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(40,21,'2026-02-03 09:30:15.123457','2026-02-03','Ready','IcebergReady','IcebergPrimary',0,'None','migrate-1');
INSERT INTO "events" VALUES(41,22,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(42,22,'2026-02-03 09:30:15.123457','2026-02-03','Ready','IcebergReady','IcebergPrimary',0,'None','migrate-1');
INSERT INTO "events" VALUES(43,23,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(44,24,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(45,24,'2026-02-03 09:30:15.123457','2026-02-03','Ready','HiveDropped','HiveDropped',0,'None','migrate-1');
INSERT INTO "events" VALUES(46,26,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(47,26,'2026-02-03 09:30:15.123457','2026-02-03','Ready','HiveDropped','HiveDropped',0,'None','migrate-1');
INSERT INTO "events" VALUES(48,27,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(49,27,'2026-02-03 09:30:15.123457','2026-02-03','Ready','HiveDropped','HiveDropped',0,'None','migrate-1');
INSERT INTO "events" VALUES(50,28,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(51,28,'2026-02-03 09:30:15.123457','2026-02-03','Ready','HiveDropped','HiveDropped',0,'None','migrate-1');
INSERT INTO "events" VALUES(52,29,'2026-01-20 09:30:15.123457','2026-01-20','Undefined','Ready','WritesBlocked',0,'None','migrate-1');
INSERT INTO "events" VALUES(53,29,'2026-02-03 09:30:15.123457','2026-02-03','Ready','HiveDropped','HiveDropped',0,'None','migrate-1');
CREATE TABLE jobs (
	task_id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	catalog_name VARCHAR(255) NOT NULL, 
	db_name VARCHAR(255) NOT NULL, 
	tbl_name VARCHAR(255) NOT NULL, 
	stg_format VARCHAR(30), 
	data_category VARCHAR(255) DEFAULT 'UNKNOWN' NOT NULL, 
	tbl_owners JSON, 
	downstream_users JSON, 
	to_be_processed BOOLEAN DEFAULT false NOT NULL, 
	in_process BOOLEAN DEFAULT false NOT NULL, 
	state VARCHAR(30) DEFAULT 'Undefined' NOT NULL, 
	desired_state VARCHAR(30) DEFAULT 'Undefined' NOT NULL, 
	initial_gap_days INTEGER DEFAULT '14' NOT NULL, 
	probation_gap_days INTEGER DEFAULT '0' NOT NULL, 
	comm_level1_date DATETIME, 
	comm_level2_date DATETIME, 
	comm_level3_date DATETIME, 
	shadow_watermark TEXT, 
	migration_paused BOOLEAN DEFAULT false NOT NULL, 
	pause_reason VARCHAR(512) DEFAULT 'None' NOT NULL, 
	shadow_status VARCHAR(30), 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	last_updated_time DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, target_format VARCHAR(30) DEFAULT 'iceberg' NOT NULL, revision INTEGER DEFAULT '0' NOT NULL, claimed_by VARCHAR(255), lease_until DATETIME, record JSON, wave VARCHAR(100), table_files INTEGER, table_bytes BIGINT, begun_at DATETIME, close_at DATETIME, target_catalog VARCHAR(255), target_schema VARCHAR(255), old_name VARCHAR(30), rewrite BOOLEAN, 
	CONSTRAINT uniq_name UNIQUE (catalog_name, db_name, tbl_name)
);
INSERT INTO "jobs" VALUES(1,'spark_catalog','sales','at_undefined_to_undefined',NULL,'UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,0,'Undefined','Undefined',14,30,NULL,NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2025-12-31 09:30:15.123457','iceberg',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'spark_catalog','sales','at_ready_to_writesblocked','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',1,0,'Ready','WritesBlocked',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-01-20 09:30:15.123457','iceberg',2,NULL,NULL,NULL,NULL,12,3000000000,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'spark_catalog','sales','at_writesblocked_to_icebergready','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'WritesBlocked','IcebergReady',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_writesblocked_to_icebergready", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(4,'spark_catalog','sales','at_icebergready_to_icebergprimary','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'IcebergReady','IcebergPrimary',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_icebergready_to_icebergprimary", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(5,'spark_catalog','sales','at_icebergprimary_to_writesunblocked','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'IcebergPrimary','WritesUnblocked',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_icebergprimary_to_writesunblocked", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(6,'spark_catalog','sales','at_writesunblocked_to_hivedropped','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'WritesUnblocked','HiveDropped',14,30,'2026-01-20 09:30:15.123457','2026-02-04 09:30:15.123457',NULL,'8412345678901234567',0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_writesunblocked_to_hivedropped", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(7,'spark_catalog','sales','at_writesunblocked_to_writesunblocked','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'WritesUnblocked','WritesUnblocked',14,30,'2026-01-20 09:30:15.123457','2026-02-04 09:30:15.123457',NULL,'8412345678901234567',0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_writesunblocked_to_writesunblocked", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(8,'spark_catalog','sales','at_hivedropped_to_hivedropped','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,0,'HiveDropped','HiveDropped',14,30,'2026-01-20 09:30:15.123457','2026-02-04 09:30:15.123457','2026-02-21 09:30:15.123457','8412345678901234567',0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_hivedropped_to_hivedropped", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(9,'spark_catalog','sales','at_ready_to_icebergdropped','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'Ready','IcebergDropped',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_ready_to_icebergdropped", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'spark_catalog','sales','at_writesunblocked_to_writesblocked','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'WritesUnblocked','WritesBlocked',14,30,'2026-01-20 09:30:15.123457','2026-02-04 09:30:15.123457',NULL,'8412345678901234567',0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_writesunblocked_to_writesblocked", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(11,'spark_catalog','sales','at_hivedropped_to_writesblocked','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'HiveDropped','WritesBlocked',14,30,'2026-01-20 09:30:15.123457','2026-02-04 09:30:15.123457',NULL,'8412345678901234567',0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_hivedropped_to_writesblocked", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(12,'spark_catalog','sales','at_writesblocked_to_synchive','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'WritesBlocked','SyncHive',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_writesblocked_to_synchive", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(13,'spark_catalog','sales','at_icebergprimary_to_synchive','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'IcebergPrimary','SyncHive',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_icebergprimary_to_synchive", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(14,'spark_catalog','sales','at_synchive_to_hiveprimary','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'SyncHive','HivePrimary',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_synchive_to_hiveprimary", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(15,'spark_catalog','sales','at_writesblocked_to_hiveprimary','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'WritesBlocked','HivePrimary',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_writesblocked_to_hiveprimary", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(16,'spark_catalog','sales','at_icebergready_to_hiveprimary','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'IcebergReady','HivePrimary',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_icebergready_to_hiveprimary", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(17,'spark_catalog','sales','at_hiveprimary_to_writesunblocked','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'HivePrimary','WritesUnblocked',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_hiveprimary_to_writesunblocked", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(18,'spark_catalog','sales','at_writesunblocked_to_icebergdropped','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'WritesUnblocked','IcebergDropped',14,30,'2026-01-20 09:30:15.123457','2026-02-04 09:30:15.123457',NULL,'8412345678901234567',0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_writesunblocked_to_icebergdropped", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(19,'spark_catalog','sales','at_icebergdropped_to_icebergdropped','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,0,'IcebergDropped','IcebergDropped',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,1,'REVERTED',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/at_icebergdropped_to_icebergdropped", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(20,'spark_catalog','sales','paused','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'WritesBlocked','IcebergReady',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,1,'ROWS_DIFFER: 3 rows of ''a:b''',NULL,'2025-12-31 09:30:15.123457','2026-02-27 09:30:15.123457','iceberg',6,NULL,NULL,'{"checked": {"location": "file:/w/paused", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(21,'spark_catalog','sales','claimed','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'IcebergReady','IcebergPrimary',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-03-01 09:30:15.123457','iceberg',5,'migrate-2','2026-03-01 10:30:15.123457','{"checked": {"location": "file:/w/claimed", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(22,'spark_catalog','sales','lapsed','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,1,'IcebergReady','IcebergPrimary',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-03-01 07:30:15.123457','iceberg',5,'migrate-3','2026-03-01 08:30:15.123457','{"checked": {"location": "file:/w/lapsed", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(23,'spark_catalog','sales','rewritten','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',1,0,'Ready','WritesBlocked',14,30,'2026-01-20 09:30:15.123457',NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-28 09:30:15.123457','delta',4,NULL,NULL,NULL,NULL,12,3000000000,NULL,NULL,'main','sales_new','view',1);
INSERT INTO "jobs" VALUES(24,'spark_catalog','sales','closing','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,0,'HiveDropped','HiveDropped',14,30,'2026-01-20 09:30:15.123457','2026-02-04 09:30:15.123457','2026-02-21 09:30:15.123457','8412345678901234567',0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-28 09:30:15.123457','iceberg',6,NULL,NULL,'{"closing": {"directory": "file:/w/closing"}}',NULL,12,3000000000,'2026-02-03 09:30:15.123457','2026-03-04 09:30:15.123457',NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(25,'spark_catalog','sales','waiting',NULL,'UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,0,'Undefined','Undefined',14,30,NULL,NULL,NULL,NULL,0,'None',NULL,'2025-12-31 09:30:15.123457','2025-12-31 09:30:15.123457','iceberg',0,NULL,NULL,NULL,'later',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(26,'spark_catalog','sales','done','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,0,'HiveDropped','HiveDropped',14,30,'2026-01-20 09:30:15.123457','2026-02-04 09:30:15.123457','2026-02-21 09:30:15.123457','8412345678901234567',0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/done", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}','first',12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE jobs_archive (
	task_id INTEGER NOT NULL, 
	catalog_name VARCHAR(255) NOT NULL, 
	db_name VARCHAR(255) NOT NULL, 
	tbl_name VARCHAR(255) NOT NULL, 
	stg_format VARCHAR(30), 
	data_category VARCHAR(255) DEFAULT 'UNKNOWN' NOT NULL, 
	tbl_owners JSON, 
	downstream_users JSON, 
	to_be_processed BOOLEAN DEFAULT false NOT NULL, 
	in_process BOOLEAN DEFAULT false NOT NULL, 
	state VARCHAR(30) DEFAULT 'Undefined' NOT NULL, 
	desired_state VARCHAR(30) DEFAULT 'Undefined' NOT NULL, 
	initial_gap_days INTEGER DEFAULT '14' NOT NULL, 
	probation_gap_days INTEGER DEFAULT '0' NOT NULL, 
	comm_level1_date DATETIME, 
	comm_level2_date DATETIME, 
	comm_level3_date DATETIME, 
	shadow_watermark TEXT, 
	migration_paused BOOLEAN DEFAULT false NOT NULL, 
	pause_reason VARCHAR(512) DEFAULT 'None' NOT NULL, 
	shadow_status VARCHAR(30), 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	last_updated_time DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	target_format VARCHAR(30) DEFAULT 'iceberg' NOT NULL, 
	revision INTEGER DEFAULT '0' NOT NULL, 
	claimed_by VARCHAR(255), 
	lease_until DATETIME, 
	record JSON, 
	archived_at DATETIME NOT NULL, wave VARCHAR(100), table_files INTEGER, table_bytes BIGINT, begun_at DATETIME, close_at DATETIME, target_catalog VARCHAR(255), target_schema VARCHAR(255), old_name VARCHAR(30), rewrite BOOLEAN, 
	PRIMARY KEY (task_id)
);
INSERT INTO "jobs_archive" VALUES(27,'spark_catalog','sales','archived','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,0,'HiveDropped','HiveDropped',14,30,'2026-01-20 09:30:15.123457','2026-02-04 09:30:15.123457','2026-02-21 09:30:15.123457','8412345678901234567',0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-03 09:30:15.123457','iceberg',4,NULL,NULL,'{"checked": {"location": "file:/w/archived", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}','2026-03-01 04:30:15.123457',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs_archive" VALUES(28,'spark_catalog','sales','archived_closed','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,0,'HiveDropped','HiveDropped',14,30,'2026-01-20 09:30:15.123457','2026-02-04 09:30:15.123457','2026-02-21 09:30:15.123457','8412345678901234567',0,'None',NULL,'2025-12-31 09:30:15.123457','2026-02-26 09:30:15.123457','iceberg',6,NULL,NULL,'{"closed": {"at": "2026-02-26"}, "moved": {"seconds": 2.5, "files": 12, "bytes": 3000000000}}','2026-03-01 04:30:15.123457',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs_archive" VALUES(29,'spark_catalog','sales','archived_again','parquet','UNKNOWN','["ann@example.com"]','["bob@example.com"]',0,0,'HiveDropped','HiveDropped',14,30,'2026-01-20 09:30:15.123457','2026-02-04 09:30:15.123457','2026-02-21 09:30:15.123457','8412345678901234567',0,'None',NULL,'2025-12-31 09:30:15.123457','2026-03-01 05:30:15.123457','iceberg',5,NULL,NULL,'{"checked": {"location": "file:/w/archived_again", "created": 1}, "rights": [{"who": "\u00e9", "what": ["MODIFY"]}]}','2026-03-01 06:30:15.123457',NULL,12,3000000000,'2026-02-03 09:30:15.123457',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE letters (
	message_id VARCHAR(255) NOT NULL, 
	level INTEGER NOT NULL, 
	task_ids JSON NOT NULL, 
	recipients JSON NOT NULL, 
	recorded_at DATETIME NOT NULL, 
	sent_at DATETIME, 
	PRIMARY KEY (message_id)
);
INSERT INTO "letters" VALUES('<1@x>',1,'[2, 3]','["ann@example.com"]','2026-01-20 09:30:15.123457','2026-01-20 09:30:15.123457');
INSERT INTO "letters" VALUES('<2@x>',3,'[26]','["ann@example.com", "bob@example.com"]','2026-02-21 09:30:15.123457','2026-02-21 09:30:15.123457');
INSERT INTO "letters" VALUES('<3@x>',2,'[4]','["ann@example.com"]','2026-03-01 09:30:15.123457',NULL);
CREATE TABLE tableferry_queue_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT tableferry_queue_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "tableferry_queue_version" VALUES('0006');
CREATE TABLE waves (
	name VARCHAR(100) NOT NULL, 
	status VARCHAR(30) DEFAULT 'planned' NOT NULL, 
	reason VARCHAR(512) DEFAULT '' NOT NULL, 
	tables_at_once INTEGER, 
	bytes_an_hour BIGINT, 
	hours VARCHAR(30) DEFAULT '' NOT NULL, 
	time_zone VARCHAR(30) DEFAULT 'UTC' NOT NULL, 
	stop_percent INTEGER DEFAULT '10' NOT NULL, 
	started_at DATETIME, 
	revision INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "waves" VALUES('first','running','',4,NULL,'','UTC',10,'2026-02-20 09:30:15.123457',1);
INSERT INTO "waves" VALUES('later','paused','3 of 20 tables failed',2,1000000000000,'22:00-06:00','Europe/Berlin',25,NULL,1);
CREATE INDEX jobs_by_state ON jobs (state, desired_state, migration_paused, target_format);
CREATE INDEX jobs_by_time ON jobs (created_at);
CREATE INDEX jobs_archive_by_name ON jobs_archive (catalog_name, db_name, tbl_name);
CREATE INDEX events_by_time ON events (at);
CREATE INDEX events_by_day ON events (day, was, state);
CREATE INDEX events_by_job ON events (task_id, at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('jobs',29);
COMMIT;
