package results

// Aims are what one cell is to reach.
type Aims struct {
	Cell  string `json:"cell"`
	Goals []Goal `json:"goals"`
}

// Goal is a figure in percent of another cell's: at least that, or at most where less is better.
type Goal struct {
	Against   string  `json:"against,omitempty"`   // the other cell; "": the baseline
	Metric    string  `json:"metric"`              // its name
	Statistic string  `json:"statistic,omitempty"` // p99 or p99.9, of all runs merged; "": by block
	Percent   float64 `json:"percent"`
}
