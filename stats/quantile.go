package stats

import "math"

// QuantileRanks returns the order statistics of n independent samples, counted from 1, that bound the
// quantile p from below and from above, each with at least 97.5%, whatever the distribution. A rank is 0 if
// no sample does. They are the ends of the two-sided 95% interval of David and Nagaraja, Order Statistics,
// 3rd ed., section 7.1: the number of samples up to the quantile is binomial.
func QuantileRanks(n uint64, p float64) (low, high uint64) {
	if !(p > 0 && p < 1) || n == 0 {
		return 0, 0
	}
	low = tail(n, p)
	if above := tail(n, 1-p); above > 0 {
		high = n + 1 - above
	}
	return low, high
}

// tail returns the largest rank r for which the probability that fewer than r of n samples are among the
// lowest part p is at most 2.5%. It returns 0 if even r = 1 exceeds that.
func tail(n uint64, p float64) uint64 {
	logs := float64(n) * math.Log1p(-p) // of the probability of exactly k, which itself would underflow
	odds, sum := math.Log(p)-math.Log1p(-p), 0.0
	for k := uint64(0); k < n; k++ {
		if sum += math.Exp(logs); sum > 0.025 {
			return k
		}
		logs += math.Log(float64(n-k)/float64(k+1)) + odds
	}
	return n
}

// Variation returns the coefficient of variation of x: the standard deviation (of a sample, n-1) over the
// mean. It is NaN for fewer than two values.
func Variation(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
	}
	mean := sum / float64(len(x))
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	if len(x) < 2 {
		return math.NaN()
	}
	return math.Sqrt(squares/float64(len(x)-1)) / mean
}

// UpperMean returns the upper end of Student's two-sided interval for the mean of which x is a sample. It is
// NaN for fewer than two values.
func UpperMean(x []float64, confidence float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	if sum == 0 && len(x) > 1 {
		return 0
	}
	n := float64(len(x))
	return sum / n * (1 + student(confidence, n-1)*Variation(x)/math.Sqrt(n))
}

// student returns the two-sided quantile of Student's t, by the expansion of Abramowitz and Stegun (26.7.5),
// within 0.2% from five degrees of freedom on.
func student(confidence, free float64) float64 {
	z := math.Sqrt2 * math.Erfinv(confidence)
	z2 := z * z
	return z * (1 + (z2+1)/(4*free) + ((5*z2+16)*z2+3)/(96*free*free) +
		(((3*z2+19)*z2+17)*z2-15)/(384*free*free*free))
}
