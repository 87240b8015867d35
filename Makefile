# make          builds bin/isolane
# make prove    shows on this machine what noisy neighbours do and what a lane gives back (root)
# make test     runs all tests (root; without it the tests that need it are skipped, and counted)

# Go modules: the library with its command, the lab, a program that embeds the library, the part for Kubernetes,
# and the hub.
MODULES = . lab examples/embed kube hub
# And one whose tests need a Kubernetes: make test-kube.
LINTED = $(MODULES) test/kube

GO ?= go
LINT = run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...
SHELL = bash
.SHELLFLAGS = -o pipefail -c

build:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=auto -o bin/isolane ./cmd/isolane

# The part of a Kubernetes node, and the hook of its containers: docs/kubernetes.md.
kube:
	CGO_ENABLED=0 $(GO) -C kube build -trimpath -buildvcs=auto -ldflags '-s -w' -o ../bin/ ./cmd/...

# A hub over many hosts, and the part of a host that follows it: docs/hub.md.
hub:
	CGO_ENABLED=0 $(GO) -C hub build -trimpath -buildvcs=auto -ldflags '-s -w' -o ../bin/ ./cmd/...

prove: tools build
	bin/isolane prove edge --quick

# One package at a time: some change this host.
test: test-tools
	export PATH=$$PATH:$(CURDIR)/bin/programs/usr/sbin ISOLANE_GUEST_KERNEL=$$(echo $(CURDIR)/bin/programs/boot/vmlinuz-*); \
	$(call each,test -json -count=1 -p 1 -timeout 30m ./...) | $(GO) run ./test/summary

# Virtual machines with NUMA, SMT, SR-IOV and a real-time kernel (root and the network, once).
lab:
	@$(call install,mmdebstrap)
	CGO_ENABLED=0 $(GO) -C lab build -trimpath -o ../bin/isolane-lab ./cmd/isolane-lab
	bin/isolane-lab build

# Tests in these machines, without the long ones: half an hour or more.
test-lab: lab build
	packaging/build bin/packages amd64
	$(lintian)
	ISOLANE_LAB=1 $(GO) -C lab test -json -count=1 -timeout 48m . -skip '$(long)' | $(GO) run ./test/summary

# Real programs with more busy threads than their lane has CPUs, counted in machines with cgroup v2, v1 and isolcpus=;
# services, containers and machines in lanes beside systemd, and started again a hundred times; lanes in groups of their
# workloads; virtual functions of cards, Open vSwitch; lanes at random, with commands killed; the scenarios; irqbalance,
# tuned, networkd and NetworkManager; packages, a host of a hub, what its tenants see, two machines, other boots, power
# cuts; the commands of docs/start.md. More than three hours, and only where nothing else runs.
test-workloads: lab build test-tools hub-bin
	PROGRAMS=$$($(hub-programs)) packaging/build bin/packages amd64
	$(next)
	ISOLANE_LAB=1 $(GO) -C lab test -json -count=1 -timeout 240m . -run '$(long)' | $(GO) run ./test/summary

# isolane and isolane-lab as .deb and .rpm, with their bills of materials, in bin/packages; the version is that of
# the commit, or VERSION=1.2.3.
packages:
	packaging/build bin/packages amd64 arm64

# These, isolane-hub, and the programs that a hub starts, for this machine's kind only.
hub-packages: hub-bin
	PROGRAMS=$$($(hub-programs)) packaging/build bin/packages $$($(GO) env GOARCH)
	$(lintian)

# Builds them twice, the second time with no build cache, and compares.
test-packages: packages
	GOCACHE=$$(mktemp -d) packaging/build bin/again amd64 arm64
	cd bin/packages && sha256sum *.deb *.rpm *.json > ../packages.sum && cd ../again && sha256sum --quiet -c ../packages.sum
	$(lintian)

# Kubernetes, etcd, containerd and runc from Go modules, into a cache: ten minutes on two CPUs, once.
kube-bin: kubebed
	@$(call install,gcc libc6-dev libseccomp-dev pkg-config)
	nice bin/kubebed build

kubebed:
	CGO_ENABLED=0 $(GO) -C test/kube build -trimpath -o ../../bin/kubebed ./cmd/kubebed

# What of it a hub starts.
hub-programs = bin/kubebed build etcd kube-apiserver kubectl
hub-bin: kubebed
	nice $(hub-programs)

# Tests on that Kubernetes (root): 17 minutes before they shared clusters, some less since.
test-kube: kube-bin
	@$(call install,strace)
	$(GO) -C test/kube test -json -count=1 -p 1 -timeout 90m ./... | $(GO) run ./test/summary

# Some of it in a machine of the lab: cgroup v2, four CPUs. The node is emulated, the control plane is not.
# KUBE_TESTS names others, and KUBE_ENV sets variables for them; in KUBE_MACHINE = test/kube/guest/systemd.yaml systemd is the cgroup driver.
KUBE_TESTS = TestPartition|TestContainers|TestClaims|TestHugepages
KUBE_MACHINE = test/kube/guest/machine.yaml
test-kube-lab: kube-bin lab
	test/kube/guest/share bin/kube-guest
	bin/kubebed around bin/kube-guest/cluster bin/isolane-lab run --tap machine0 \
	-m $(KUBE_MACHINE) --share bin/kube-guest --timeout 60m -- env $(KUBE_ENV) /host/run '$(KUBE_TESTS)'

# A node that is such a machine loses its power and boots again: its pods have the CPUs that they had.
test-kube-boot: kube-bin lab
	test/kube/guest/share bin/kube-guest
	bin/kubebed around bin/kube-guest/cluster test/kube/guest/boots test/kube/guest/machine.yaml bin/kube-guest

# A hub with the API server and the store of that Kubernetes, and a host that follows it (root): more than ten minutes.
# HUB_TESTS='-short ./cmd/isolane-hub' leaves out what make test has, and those that take a minute or more each.
HUB_TESTS = ./...
test-hub: hub-bin
	ISOLANE_HUB_PROGRAMS=$$($(hub-programs)) $(GO) -C hub test -json -count=1 -p 1 -timeout 30m $(HUB_TESTS) | $(GO) run ./test/summary

# Debian packages, installed only where they are missing.
tools:
	@$(call install,stress-ng iperf3 iproute2 rt-tests)

# What tests feed with our output. Programs that would start a service are only unpacked.
test-tools: tools
	@$(call install,libxml2-utils libvirt0 qemu-system-x86 dpdk-dev libunbound8 libxdp1 numactl \
	kmod nftables dnsmasq-base tcpdump tcpflow-nox runc crun wrk sockperf busybox-static python3-minimal cpio libevent-2.1-7 libsasl2-2 \
	libvarnishapi3 libjemalloc2 gcc libc6-dev)
	@[ -e bin/programs/usr/sbin/varnishd ] || { mkdir -p bin/programs && cd bin/programs && \
	kernel=$$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p') && \
	apt-get download -qq nginx memcached varnish prometheus openvswitch-common openvswitch-switch openvswitch-switch-dpdk $$kernel 2>/dev/null && \
	for p in *.deb; do dpkg -x $$p . || exit 1; done && mv usr/bin/varnishstat usr/sbin && mv usr/sbin/varnishd usr/lib && \
	printf '#!/bin/sh\nexec %s/usr/lib/varnishd "$$@" -p vmod_path=%s/usr/lib/x86_64-linux-gnu/varnish/vmods\n' $$PWD $$PWD > usr/sbin/varnishd && \
	chmod +x usr/sbin/varnishd && rm -r *.deb usr/share/doc; } # some have Go sources
	@cd bin/programs && [ -e lib/modules/*/modules.dep ] || depmod -b . $$(ls lib/modules)

# Scripts of the lab that take long: on machines of their own, and on the one of many.
long = TestLab/(programs|restarts|services|functions|irqbalance|tuned|networkd|start)|TestLab/.*/^(packages|site|others|pair|boots|history|resume|edge|scenarios|kills|no-iommu|ovs|ovs-dpdk|own|paths|random|tags|vf|vf-cut|wakeups|web)$$

# The version that the lab upgrades to: it wants another value of a setting.
next = sed 's|"n/a"|"1"|' knob/power.go > bin/next.txt && \
	echo '{"Replace": {"knob/power.go": "bin/next.txt"}}' > bin/next.json && CGO_ENABLED=0 $(GO) build -trimpath \
	-overlay bin/next.json -ldflags '-s -w -X isolane.dev/isolane/version.release=99' -o bin/packages/next ./cmd/isolane

# Looks at the packages as Debian does.
lintian = @$(call install,lintian); for p in bin/packages/*.deb; do lintian --allow-root --fail-on error $$p || exit 1; done

# An eBPF program, compiled without names of this machine.
bpf = cd $(1) && clang -O2 -g -Wall -Werror -target bpfel -I/usr/include/x86_64-linux-gnu -fdebug-compilation-dir=. \
	-c bpf/$(2).c -o bpf/$(2).o && llvm-strip -g bpf/$(2).o

# Runs a go command in all modules, and fails where it fails in one.
each = { code=0; for m in $(or $(2),$(MODULES)); do $(GO) -C $$m $(1) || code=$$?; done; exit $$code; }

install = missing=$$(for p in $(1); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	[ -z "$$missing" ] || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	apt-get install -y -qq --no-install-recommends $$missing; }

lint:
	$(call each,vet ./...,$(LINTED))
	$(call each,$(LINT),$(LINTED))

# Each fuzz target for 20 s.
fuzz:
	@grep -o '^func Fuzz[A-Za-z]*' -r --include='*_test.go' . | sed 's|/[^/]*:func | |' | while read dir name; do \
	$(GO) -C $$dir test -run '^$$' -fuzz "^$$name$$" -fuzztime 20s -fuzzminimizetime 1x || exit 1; done

# The echo client against a plain C program, on two CPUs (root, gcc).
bench:
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

# Compiles the eBPF programs again (clang, llvm, libbpf-dev); CI fails when that changes a file.
generate:
	$(call bpf,witness,trace)
	$(call bpf,netpath/express,express)
	$(call bpf,change/netdev,police)

golden:
	$(GO) test ./claims/rules ./cmd/isolane ./cores ./draw ./history ./report ./top ./watch -update
	$(GO) test . -update
	$(GO) -C lab test . -run TestArgs -update
	$(GO) -C kube test ./offer -update

.PHONY: build kube hub prove lab test-lab test-workloads kube-bin kubebed hub-bin test-kube test-kube-lab test-kube-boot test-hub test packages hub-packages test-packages tools test-tools lint fuzz bench generate golden
