// Package records puts the numbers of a run into the forms that other tools read: TensorBoard's event files and CSV. It
// reads the files of a run, so that it works on a run that is up, has ended or has crashed, and slows none.
package records
