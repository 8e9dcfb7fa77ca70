// Package bucket is a messages.Store in a bucket of a store that speaks S3, through MinIO's client.
//
// A segment is an object, put in a single request: it is there whole or not at all, and no parts of an upload stay behind. Put compares the
// hash that the store answers with, and reads the object back where the store answers with no hash. Reads are ranges: a request for the
// end of a segment, which has its index, and a request for each block or, in order, for several.
package bucket
