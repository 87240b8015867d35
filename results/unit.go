package results

// Units that are printed and read with a prefix that fits.
const (
	TimeUnit = "ns"
	RateUnit = "bit/s"
)
