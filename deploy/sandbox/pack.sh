#!/bin/sh
# Packs this machine's bubblewrap, Python and a few programs of the shell, with the libraries that they load: what the image of a
# producer with sandboxes adds to the binary where no image can be pulled.
#
#   deploy/sandbox/pack.sh deploy/bin/sandbox.tar
#   docker build -f deploy/Dockerfile --target sandbox-host -t weir:sandbox .
#
# It needs Linux, bash's or dash's sh, ldd, GNU tar, and python3 and bwrap in /usr/bin: apt install bubblewrap python3.
# Installed packages of Python are left out; PACKAGES="numpy regex" takes these of /usr/lib/python3/dist-packages along.
set -eu
export LC_ALL=C PATH=/usr/bin:/bin
out=${1:?the file to write, such as deploy/bin/sandbox.tar}
python=/usr/bin/python3
for program in "$python" /usr/bin/bwrap; do
  [ -x "$program" ] || { echo "$program is not there: apt install bubblewrap python3" >&2; exit 1; }
done

root=$(mktemp -d)
list=$(mktemp)
trap 'rm -rf "$root" "$list"' EXIT

# A file keeps its path, but for /bin, /sbin and /lib, which are links into /usr on this machine and in the image.
add() {
  target=$(readlink -f "$1")
  case $target in /usr/*) ;; *) target=/usr$target ;; esac
  mkdir -p "$root$(dirname "$target")"
  [ -e "$root$target" ] || cp -L "$1" "$root$target"
  name=$1
  case $name in /usr/*) ;; *) name=/usr$name ;; esac
  if [ "$name" != "$target" ]; then
    mkdir -p "$root$(dirname "$name")"
    [ -e "$root$name" ] || ln -s "$target" "$root$name"
  fi
}

mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64" "$root/etc" "$root/proc" "$root/dev"
for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$root/$dir"; done

programs="$python /usr/bin/bwrap"
for name in sh bash cat chmod cp cut date dirname env expr false find grep head ls mkdir mktemp mv printf pwd rm sed seq sleep sort tail tee test touch tr true uniq wc xargs; do
  path=$(command -v "$name" || true)
  case $path in /*) programs="$programs $path" ;; *) [ ! -x "/usr/bin/$name" ] || programs="$programs /usr/bin/$name" ;; esac
done
for program in $programs; do add "$program"; echo "$program" >>"$list"; done

stdlib=$("$python" -I -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
mkdir -p "$root$stdlib"
tar -C "$stdlib" -cf - --exclude=__pycache__ --exclude=./test --exclude=./idlelib --exclude=./tkinter --exclude=./turtledemo --exclude=./ensurepip \
  --exclude=./lib2to3 --exclude=./distutils --exclude=./site-packages --exclude=./dist-packages --exclude='./config-*' . | tar -C "$root$stdlib" -xf -
for package in ${PACKAGES:-}; do
  from=/usr/lib/python3/dist-packages
  mkdir -p "$root$from"
  (cd "$from" && cp -RL "$package"* "$root$from/")
done
find "$root/usr/lib" -name '*.so*' -type f -path '*python*' >>"$list"

# What a program or a module of Python loads; ldd shows the libraries of libraries as well.
xargs ldd <"$list" 2>/dev/null | sed -nE 's/.*=> (\/[^ ]+) .*/\1/p; s/^[[:space:]]+(\/[^ ]+) \(0x.*/\1/p' | sort -u | while read -r library; do
  add "$library"
done
# Other users read what root packs.
chmod -R a+rX,go-w "$root"
mkdir -p "$(dirname "$out")"
tar -C "$root" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$out.$$" .
mv "$out.$$" "$out"
