// Package sqlite is the tool of type sql: an agent's queries on an SQLite database, which they can only read.
//
//	tools: {sql: {path: shop.db}}
//
// path is a database, or a folder of them, of which the prompt's world then names a database: {"database": "concert_singer"} is the file
// concert_singer.db, .sqlite or concert_singer/concert_singer.sqlite. A world with {"script": "CREATE TABLE ..."} has a database of its own
// in memory, which the script fills.
//
// SQLite runs in this process as WebAssembly that was compiled to Go: its memory is a slice with a bound, and no query can reach anything
// outside it. Queries are held to reading by the file's mode, by the connection and by an authorizer that allows reading alone.
package sqlite
