// Package dashboards makes Grafana's dashboards of deploy/grafana from a list of panels. Each is a question about a
// run, and the expressions that answer it; deploy's tests evaluate each expression by a Prometheus that scraped a run.
package dashboards

import (
	"encoding/json"
	"fmt"
)

// Source is the uid of the data source of deploy/grafana.
const Source = "weir-prometheus"

// Board is a dashboard.
type Board struct {
	// UID is its name in links, Title its heading.
	UID, Title string
	Rows       []Row
}

// Row is a row of panels under a heading, as wide as the screen.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is a question.
type Panel struct {
	// Title is the question in short, Tells the meaning of the answer and the cure.
	Title, Tells string
	// Unit is Grafana's; "" is a plain number.
	Unit string
	// Stat shows the newest value in large in the place of lines over time.
	Stat  bool
	Lines []Line
}

// Line is an expression and its name.
type Line struct{ Expr, Name string }

type object = map[string]any

// JSON is a board as Grafana reads it.
func (b Board) JSON() ([]byte, error) {
	var panels []object
	y, id := 0, 0
	add := func(p object) {
		id++
		p["id"] = id
		panels = append(panels, p)
	}
	place := func(x, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }
	for _, row := range b.Rows {
		add(object{"type": "row", "title": row.Title, "gridPos": place(0, 24, 1), "panels": []any{}})
		y++
		height := 7
		if row.Panels[0].Stat {
			height = 4
		}
		width := 24 / len(row.Panels)
		for i, p := range row.Panels {
			add(p.panelObject(place(i*width, width, height)))
		}
		y += height
	}
	out, err := json.MarshalIndent(object{
		"uid": b.UID, "title": b.Title, "tags": []string{"weir"}, "timezone": "browser", "schemaVersion": 39, "version": 1, "editable": true,
		"refresh": "10s", "time": object{"from": "now-30m", "to": "now"},
		"templating": object{"list": []any{}}, "annotations": object{"list": []any{}},
		"links":  []object{{"type": "dashboards", "tags": []string{"weir"}, "title": "Weir", "asDropdown": false, "includeVars": true, "keepTime": true}},
		"panels": panels,
	}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("write dashboard %s: %w", b.UID, err)
	}
	return append(out, '\n'), nil
}

func (p Panel) panelObject(place object) object {
	source := object{"type": "prometheus", "uid": Source}
	var targets []object
	for i, l := range p.Lines {
		targets = append(targets, object{"refId": string(rune('A' + i)), "expr": l.Expr, "legendFormat": l.Name, "datasource": source})
	}
	unit := p.Unit
	if unit == "" {
		unit = "short"
	}
	out := object{
		"type": "timeseries", "title": p.Title, "description": p.Tells, "datasource": source, "gridPos": place, "targets": targets,
		"fieldConfig": object{"defaults": object{"unit": unit}, "overrides": []any{}},
		"options":     object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi"}},
	}
	if p.Stat {
		out["type"] = "stat"
		out["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value"}
	}
	return out
}
