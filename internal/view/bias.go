package view

func (a *api) bias(q asked) (any, error) {
	b := q.run.folder.Archive.Bias()
	b.Issued, b.Starved = q.run.folder.Steps.Sources(q.run.folder.GroupSize())
	return b, nil
}
