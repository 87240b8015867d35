package cores

import "fmt"

// vpp writes the stanza cpu (FD.io: VPP configuration, "The cpu section"). With relative, since VPP
// 24.10, its numbers are places in the cpuset that VPP was started in; without, VPP takes them as the
// kernel's and exits if one is not in its cpuset.
func vpp(r Request) (string, error) {
	main, workers := r.main()
	stanza := func(relative string, main int, workers fmt.Stringer) string {
		text := "cpu {\n" + relative + fmt.Sprintf("  main-core %d\n", main)
		if r.Lane.CPUs.Len() > 1 {
			text += fmt.Sprintf("  corelist-workers %s\n", workers)
		}
		return text + "}\n"
	}
	text := stanza("", main, workers)
	one := r.Lane.CPUs.Difference(workers)
	if rel := r.relative(workers); rel != workers || r.relative(one) != one {
		text += "\n# The same for VPP 24.10 and later, with places in the cpuset " + r.Granted.String() + ":\n# " +
			"cpu { relative main-core " + r.relative(one).String()
		if !rel.IsEmpty() {
			text += " corelist-workers " + rel.String()
		}
		text += " }\n"
	}
	return text, nil
}
