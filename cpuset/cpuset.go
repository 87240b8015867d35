// Package cpuset holds sets of CPU numbers as the kernel writes them.
//
// A Set is an immutable, comparable value: two sets with the same members are ==, a Set can be the
// key of a map, and the zero Set is empty. The same type serves NUMA node lists, which the kernel
// prints in the same format.
//
//	lane := cpuset.MustParse("2-5,10")
//	rest := online.Difference(lane)
package cpuset

import (
	"fmt"
	"io/fs"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// Max is the highest CPU number that a Set takes: the largest NR_CPUS of Linux is 8192.
const Max = 8191

// Set is a set of CPU numbers from 0 to Max. The zero value is the empty set.
type Set struct {
	bits string // one bit a CPU, little endian, without trailing zero bytes, so that == is equality
}

// Of returns the set of the given CPUs. It panics on a number outside 0..Max, which is a bug of the
// caller: numbers from outside come through Parse.
func Of(cpus ...int) Set {
	var b [(Max + 1) / 8]byte
	for _, c := range cpus {
		if c < 0 || c > Max {
			panic(fmt.Sprintf("cpuset: CPU %d is outside 0-%d", c, Max))
		}
		b[c/8] |= 1 << (c % 8)
	}
	return trim(b[:])
}

func trim(b []byte) Set {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return Set{string(b[:n])}
}

// MustParse is Parse for constants; it panics on an error.
func MustParse(list string) Set {
	s, err := Parse(list)
	if err != nil {
		panic(err)
	}
	return s
}

// Parse reads a cpulist: "2-5,10", with the strides "0-15:2/4" (of every 4 CPUs the first 2) and
// white space around it. The empty string is the empty set. Ranges may overlap, as the kernel
// allows; a range that runs backwards is an error. See "CPU lists" in
// Documentation/admin-guide/kernel-parameters.rst.
func Parse(list string) (Set, error) {
	return ParseWithin(list, Set{})
}

// Read reads a file with a cpulist, of /proc, /sys or a cgroup.
func Read(root fs.FS, name string) (Set, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return Set{}, err
	}
	s, err := Parse(string(text))
	if err != nil {
		err = fmt.Errorf("/%s: %w", name, err)
	}
	return s, err
}

// ParseWithin is Parse for lists that may also say "all" or use "N" for the last CPU, as boot
// parameters do; possible gives their meaning. With an empty possible set both are errors.
func ParseWithin(list string, possible Set) (Set, error) {
	text := strings.TrimSpace(list)
	if text == "" {
		return Set{}, nil
	}
	var b [(Max + 1) / 8]byte
	for _, part := range strings.Split(text, ",") {
		if err := addRange(b[:], part, possible); err != nil {
			return Set{}, fmt.Errorf("cpulist %q: %w", shorten(text), err)
		}
	}
	return trim(b[:]), nil
}

func shorten(s string) string {
	if len(s) > 80 {
		return s[:77] + "..."
	}
	return s
}

// addRange sets the bits of one part of a cpulist: "N", "N-M", "N-M:used/group" or "all".
func addRange(b []byte, part string, possible Set) error {
	span, stride, strided := strings.Cut(part, ":")
	used, group := 1, 1
	if strided {
		u, g, ok := strings.Cut(stride, "/")
		var err error
		if used, err = number(u, possible); err == nil {
			group, err = number(g, possible)
		}
		if !ok || err != nil || used < 1 || group < used {
			return fmt.Errorf("%q: expected a stride used/group with 1 <= used <= group", shorten(part))
		}
	}
	first, last, isRange := strings.Cut(span, "-")
	if span == "all" {
		if possible.IsEmpty() {
			return fmt.Errorf("%q has no meaning here", span)
		}
		first, last, isRange = "0", "N", true
	}
	lo, err := number(first, possible)
	if err != nil {
		return err
	}
	hi := lo
	if isRange {
		if hi, err = number(last, possible); err != nil {
			return err
		}
	} else if strided {
		return fmt.Errorf("%q: a stride needs a range", shorten(part))
	}
	if hi < lo {
		return fmt.Errorf("%q runs backwards", shorten(part))
	}
	for c := lo; c <= hi; c++ {
		if (c-lo)%group < used {
			b[c/8] |= 1 << (c % 8)
		}
	}
	return nil
}

func number(s string, possible Set) (int, error) {
	if s == "N" && !possible.IsEmpty() {
		return possible.Last(), nil
	}
	if s == "" || s[0] < '0' || s[0] > '9' { // Atoi takes signs
		return 0, fmt.Errorf("%q is not a CPU number", shorten(s))
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > Max {
		return 0, fmt.Errorf("%q is not a CPU number up to %d", shorten(s), Max)
	}
	return n, nil
}

// ParseMask reads a cpumask: hexadecimal words of 32 bits, the highest first, split by commas
// ("ffffffff,00000003"), as smp_affinity and rps_cpus print it.
func ParseMask(mask string) (Set, error) {
	text := strings.TrimSpace(mask)
	words := strings.Split(text, ",")
	if len(words) > (Max+1)/32 {
		return Set{}, fmt.Errorf("cpumask %q: more than %d CPUs", shorten(text), Max+1)
	}
	var b [(Max + 1) / 8]byte
	for i, w := range words {
		v, err := strconv.ParseUint(strings.TrimPrefix(w, "0x"), 16, 32)
		if err != nil {
			return Set{}, fmt.Errorf("cpumask %q: word %q is not 32 bits of hexadecimal", shorten(text), shorten(w))
		}
		at := (len(words) - 1 - i) * 4
		for k := range 4 {
			b[at+k] = byte(v >> (8 * k) & 0xff)
		}
	}
	return trim(b[:]), nil
}

// String prints the set as a cpulist: "2-5,10"; the empty set prints as "".
func (s Set) String() string {
	var b strings.Builder
	lo := -2
	hi := -2
	flush := func() {
		if lo < 0 {
			return
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(lo))
		if hi > lo {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(hi))
		}
	}
	for c := range s.All() {
		if c != hi+1 {
			flush()
			lo = c
		}
		hi = c
	}
	flush()
	return b.String()
}

// Mask prints the set as a cpumask in words of 32 bits: "3", "1,00000000".
func (s Set) Mask() string {
	words := (len(s.bits) + 3) / 4
	if words == 0 {
		return "0"
	}
	var b strings.Builder
	for w := words - 1; w >= 0; w-- {
		var v uint32
		for k := range 4 {
			if at := w*4 + k; at < len(s.bits) {
				v |= uint32(s.bits[at]) << (8 * k)
			}
		}
		if w == words-1 {
			b.WriteString(strconv.FormatUint(uint64(v), 16))
		} else {
			fmt.Fprintf(&b, ",%08x", v)
		}
	}
	return b.String()
}

// MarshalText makes a Set a cpulist in JSON and YAML.
func (s Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a cpulist.
func (s *Set) UnmarshalText(text []byte) error {
	v, err := Parse(string(text))
	if err == nil {
		*s = v
	}
	return err
}

// Equal is ==, for packages that compare by method, such as go-cmp.
func (s Set) Equal(t Set) bool { return s == t }

// IsEmpty says whether the set has no members.
func (s Set) IsEmpty() bool { return s.bits == "" }

// Len is the number of members.
func (s Set) Len() int {
	n := 0
	for i := range len(s.bits) {
		n += bits.OnesCount8(s.bits[i])
	}
	return n
}

// Contains says whether cpu is a member; numbers out of range are not.
func (s Set) Contains(cpu int) bool {
	return cpu >= 0 && cpu/8 < len(s.bits) && s.bits[cpu/8]&(1<<(cpu%8)) != 0
}

// All yields the members in ascending order.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range len(s.bits) {
			for v := s.bits[i]; v != 0; v &= v - 1 {
				if !yield(i*8 + bits.TrailingZeros8(v)) {
					return
				}
			}
		}
	}
}

// Slice returns the members in ascending order.
func (s Set) Slice() []int {
	cpus := make([]int, 0, s.Len())
	for c := range s.All() {
		cpus = append(cpus, c)
	}
	return cpus
}

// First is the lowest member, or -1 of the empty set.
func (s Set) First() int {
	for c := range s.All() {
		return c
	}
	return -1
}

// Last is the highest member, or -1 of the empty set.
func (s Set) Last() int {
	if s.bits == "" {
		return -1
	}
	return (len(s.bits)-1)*8 + bits.Len8(s.bits[len(s.bits)-1]) - 1
}

// Union returns the CPUs that are in s or in t.
func (s Set) Union(t Set) Set {
	return s.combine(t, func(a, b byte) byte { return a | b })
}

// Intersection returns the CPUs that are in both s and t.
func (s Set) Intersection(t Set) Set {
	return s.combine(t, func(a, b byte) byte { return a & b })
}

// Difference returns the CPUs of s that are not in t.
func (s Set) Difference(t Set) Set {
	return s.combine(t, func(a, b byte) byte { return a &^ b })
}

func (s Set) combine(t Set, op func(a, b byte) byte) Set {
	b := make([]byte, max(len(s.bits), len(t.bits)))
	for i := range b {
		var x, y byte
		if i < len(s.bits) {
			x = s.bits[i]
		}
		if i < len(t.bits) {
			y = t.bits[i]
		}
		b[i] = op(x, y)
	}
	return trim(b)
}

// IsSubsetOf says whether each member of s is one of t.
func (s Set) IsSubsetOf(t Set) bool { return s.Difference(t).IsEmpty() }

// Intersects says whether s and t share a member.
func (s Set) Intersects(t Set) bool { return !s.Intersection(t).IsEmpty() }
