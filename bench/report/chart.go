package main

import (
	"fmt"
	"html"
	"strings"
)

// Sizes of the chart in pixels.
const (
	rowHeight  = 18
	nameWidth  = 470
	barWidth   = 400 // of fullScale
	fullScale  = 200 // percent of the floor; longer bars are cut
	chartWidth = nameWidth + barWidth + 90
	chartTop   = 40
)

// chart is an SVG with a bar for each benchmark that has a floor: how much of the floor it reaches.
func (r Report) chart() string {
	var rows []Result
	for _, result := range r.Results {
		if _, ok := result.Figures[ofFloor]; ok {
			rows = append(rows, result)
		}
	}
	height := chartTop + rowHeight*len(rows) + 10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", chartWidth, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(&b, `<text x="10" y="20" font-size="14">Percent of the floor measured in the same run: longer is better</text>`+"\n")
	for i, row := range rows {
		share := row.Figures[ofFloor]
		y := chartTop + rowHeight*i
		length := min(share, fullScale) / fullScale * barWidth
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, nameWidth-6, y+13, html.EscapeString(row.Name))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="#3b7dd8"/>`, nameWidth, y+3, length, rowHeight-6)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s %%</text>`+"\n", nameWidth+length+5, y+13, number(share))
	}
	at := nameWidth + barWidth*100/fullScale
	fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#c33" stroke-dasharray="4 3"/>`+"\n", at, chartTop-4, at, height-8)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" fill="#c33">the floor</text>`+"\n</svg>\n", at, chartTop-8)
	return b.String()
}
